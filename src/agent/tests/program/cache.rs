//! The package cache.

use super::super::site::Gate;
use super::*;
use std::sync::Arc;
use std::time::Duration;

fn script(text: &str) -> Vec<u8> {
    zip(&[("run", 0o755, format!("#!/bin/sh\necho {text}; sleep 0.1\n").as_bytes())])
}

async fn run(scene: &Scene, order: &ProgramOrder) -> Vec<String> {
    scene.start(order).await;
    scene.reached(order, ProgramState::Exited).await;
    scene.is_clean(order).await;
    scene.lines(order, "stdout")
}

#[actix_rt::test]
async fn two_at_once_fetch_it_once_and_a_hash_is_never_asked_for_again() {
    let scene = Scene::new();
    let package = script("hello");
    let (gate, bytes) = (Arc::new(Gate::default()), package.clone());
    let held = gate.clone();
    let site = Site::new(move |_| {
        assert!(held.wait(Duration::from_secs(20)));
        answer(200, "", &bytes)
    });
    let agent = Running::start(scene.config());
    for hash in [None, Some(sha256(&package))] {
        let (one, two) = (packed("run", &site, hash.clone()), packed("run", &site, hash.clone()));
        let hits = site.hits().len();
        for order in [&one, &two] {
            scene.start(order).await;
            scene.reached(order, ProgramState::Accepted).await;
        }
        gate.open();
        for order in [&one, &two] {
            scene.reached(order, ProgramState::Exited).await;
            scene.is_clean(order).await;
        }
        assert!(site.hits().len() - hits <= 2);
        if hash.is_some() {
            assert_eq!(site.hits().len() - hits, 1);
            assert_eq!(run(&scene, &packed("run", &site, hash)).await, ["hello"]);
            assert_eq!(site.hits().len() - hits, 1);
        }
    }
    scene.end(agent).await;
}

#[actix_rt::test]
async fn without_a_hash_the_server_is_asked_whether_it_has_changed() {
    let scene = Scene::new();
    let (one, two) = (script("one"), script("two"));
    let site = Site::new(move |hit| match (hit.nth, hit.header("if-none-match")) {
        (0, None) => answer(200, "ETag: \"1\"\r\n", &one),
        (1, Some("\"1\"")) => answer(304, "", ""),
        (2, Some("\"1\"")) => answer(200, "ETag: \"2\"\r\n", &two),
        (3, Some("\"2\"")) => answer(304, "", ""),
        _ => answer(500, "", ""),
    });
    let agent = Running::start(scene.config());
    for text in ["one", "one", "two", "two"] {
        assert_eq!(run(&scene, &packed("run", &site, None)).await, [text]);
    }
    scene.end(agent).await;
}

#[actix_rt::test]
async fn what_was_not_used_for_longest_goes_and_never_what_is_in_use() {
    let scene = Scene::new();
    let packages: Vec<Vec<u8>> = (0..3).map(|i| script(&format!("package {i}"))).collect();
    let mut config = scene.config();
    config.programs.cache_bytes = packages[0].len() as u64 * 2 + 10;
    let agent = Running::start(config);
    let sites: Vec<Site> = packages.iter().cloned().map(site).collect();
    let folder = scene.data.path().join("packages");
    for (i, kept) in [(0, vec![0]), (1, vec![0, 1]), (0, vec![0, 1]), (2, vec![0, 2])] {
        let order = packed("run", &sites[i], Some(sha256(&packages[i])));
        assert_eq!(run(&scene, &order).await, [format!("package {i}")]);
        let there: Vec<usize> = (0..3).filter(|&i| folder.join(sha256(&packages[i])).exists()).collect();
        assert_eq!(there, kept);
    }
    assert_eq!(sites.iter().map(|site| site.hits().len()).collect::<Vec<_>>(), [1, 1, 1]);
    scene.end(agent).await;
}

#[actix_rt::test]
async fn a_path_is_the_brokers_own_and_the_token_goes_nowhere_else() {
    let scene = Scene::new();
    let package = script("own");
    let bytes = package.clone();
    let broker = Site::new(move |hit| if hit.path.starts_with("/base/api/") { answer(200, "", &bytes) } else { answer(404, "", "") });
    let elsewhere = site(package.clone());
    let config = AgentConfig { broker: broker.url("/base/").parse().expect("a URL"), token: Some("secret".to_owned()), ..scene.config() };
    let packages = crate::agent::program::packages_for_tests(&config, scene.data.path());
    let get = async |url: String| packages.get(&Package { url, sha256: None }).await.map(|kept| std::fs::read(&kept.path).expect("kept"));
    assert_eq!(get("/api/v1/packages/x?y=1".to_owned()).await.expect("fetched"), package);
    assert_eq!(get(elsewhere.url("/p")).await.expect("fetched"), package);
    assert!(get(format!("//{}/p", elsewhere.address)).await.is_err());
    assert!(get(format!("/{}", elsewhere.url("/p"))).await.is_err());
    assert_eq!(broker.hits()[0].path, "/base/api/v1/packages/x?y=1");
    assert_eq!(broker.hits()[0].header("token"), Some("secret"));
    assert_eq!((elsewhere.hits().len(), elsewhere.hits()[0].header("token")), (1, None));
    scene.broker.server.stop(false).await;
}

#[actix_rt::test]
async fn an_order_to_end_is_heeded_while_the_package_is_fetched() {
    let scene = Scene::new();
    let gate = Arc::new(Gate::default());
    let held = gate.clone();
    let site = Site::new(move |_| {
        held.wait(Duration::from_secs(20));
        answer(200, "", script("late"))
    });
    let agent = Running::start(scene.config());
    let order = packed("run", &site, None);
    scene.start(&order).await;
    until("it is fetched", || site.hits().len() == 1).await;
    scene.exit(&order, 20_000).await;
    let exit = scene.reached(&order, ProgramState::Exited).await.exit.expect("how it ended");
    assert_eq!((exit.code, exit.signal, exit.ended_by.as_deref(), exit.lines), (None, None, Some("exit"), 0));
    gate.open();
    scene.is_clean(&order).await;
    scene.end(agent).await;
}
