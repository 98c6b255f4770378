//! Programs that the agent's settings forbid, and packages that cannot be fetched.

use super::*;
use crate::config::programs::ProgramSettings;
use crate::protocol::application::ProgramErrorKind;

async fn refused(scene: &Scene, order: &ProgramOrder) -> (ProgramErrorKind, String) {
    scene.start(order).await;
    let error = scene.reached(order, ProgramState::Refused).await.error.expect("why");
    scene.is_clean(order).await;
    (error.kind, error.message)
}

#[actix_rt::test]
async fn nothing_runs_where_the_owner_of_the_machine_has_not_said_so() {
    let scene = Scene::new();
    let mut config = scene.config();
    config.programs.are_allowed = false;
    let agent = Running::start(config);
    let (kind, message) = refused(&scene, &sh("echo")).await;
    assert!(kind == ProgramErrorKind::Forbidden && message.contains("applications"), "{message}");
    assert_eq!(scene.broker.seen().queries[0]["applications"], "false");
    assert!(!scene.data.path().join("programs").exists());
    scene.end(agent).await;
}

#[actix_rt::test]
async fn hosts_and_users_that_are_not_listed_are_refused() {
    let scene = Scene::new();
    let mut config = scene.config();
    config.programs.package_hosts = vec![HostPattern::new("localhost").expect("a host")];
    let agent = Running::start(config);
    let target = site(zip(&[("run", 0o755, b"#!/bin/sh\n")]));
    let onward = target.url("/secret");
    let hop = Site::new(move |_| answer(302, &format!("Location: {onward}\r\n"), ""));
    let at = |url: String| ProgramOrder { package: Some(Package { url, sha256: None }), ..order("run", &[]) };
    for order in [
        at(target.url("/package")),
        at(format!("http://localhost:{}/", hop.address.port())),
        at("file:///etc/passwd".to_owned()),
        at("ftp://localhost/x".to_owned()),
        ProgramOrder { user: Some("nobody".to_owned()), ..sh("id") },
    ] {
        let (kind, message) = refused(&scene, &order).await;
        assert_eq!(kind, ProgramErrorKind::Forbidden, "{message}");
    }
    assert_eq!((target.hits().len(), hop.hits().len()), (0, 1));
    scene.end(agent).await;
}

#[actix_rt::test]
async fn an_agent_that_is_root_runs_programs_as_root_only_if_told_so() {
    let scene = Scene::new();
    let mut config = scene.config();
    config.programs.users = Vec::new();
    let agent = Running::start(config);
    if nix::unistd::Uid::effective().is_root() {
        for order in [sh("id"), ProgramOrder { user: Some("root".to_owned()), ..sh("id") }] {
            let (kind, message) = refused(&scene, &order).await;
            assert_eq!(kind, ProgramErrorKind::Forbidden);
            assert!(message.contains("applicationUsers"), "{message}");
        }
    } else {
        let order = sh("id");
        scene.start(&order).await;
        scene.reached(&order, ProgramState::Exited).await;
    }
    scene.end(agent).await;
}

#[actix_rt::test]
async fn an_allowed_user_is_what_the_program_runs_as() {
    let scene = Scene::new();
    let mut config = scene.config();
    config.programs.users = vec!["nobody".to_owned()];
    let agent = Running::start(config);
    // So that no other user may pass through it.
    std::fs::set_permissions(scene.data.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).expect("its owner");
    let looks = "for f in spec.json program.json output; do test -r ../$f || echo closed; done";
    let named = ProgramOrder { user: Some("nobody".to_owned()), ..sh(&format!("id -un; id -Gn; echo x >mine; cat mine; {looks}")) };
    if nix::unistd::Uid::effective().is_root() {
        for order in [ProgramOrder { user: None, program: sh("").program, ..named.clone() }, named] {
            scene.start(&order).await;
            scene.reached(&order, ProgramState::Exited).await;
            let lines = scene.lines(&order, "stdout");
            assert_eq!(
                (lines[0].as_str(), &lines[2..]),
                ("nobody", &["x", "closed", "closed", "closed"].map(str::to_owned)[..]),
                "{lines:?}"
            );
            assert!(!lines[1].contains("root"), "{lines:?}");
            scene.is_clean(&order).await;
        }
    } else {
        assert_eq!(refused(&scene, &named).await.0, ProgramErrorKind::Forbidden);
    }
    scene.end(agent).await;
}

#[actix_rt::test]
async fn a_package_that_is_not_to_be_had_says_why() {
    let scene = Scene::new();
    let mut config = scene.config();
    config.programs.max_package_bytes = 10_000;
    let agent = Running::start(config);
    let good = zip(&[("run", 0o755, b"#!/bin/sh\n")]);
    let large = vec![b'x'; 20_000];
    let gone = Site::new(|_| answer(404, "", ""));
    let ill = Site::new(|_| answer(500, "", ""));
    let teapot = Site::new(|_| answer(418, "", ""));
    let unsaid = Site::new(|_| super::super::site::raw([&b"HTTP/1.1 200 OK\r\n\r\n"[..], &[b'x'; 20_000]].concat()));
    let cut = Site::new(|_| super::super::site::raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nPK"));
    let (good_site, large_site) = (site(good.clone()), site(large));
    for (order, expected) in [
        (packed("run", &gone, None), ProgramErrorKind::PackageNotFound),
        (packed("run", &ill, None), ProgramErrorKind::PackageFetch),
        (packed("run", &teapot, None), ProgramErrorKind::PackageFetch),
        (packed("run", &cut, None), ProgramErrorKind::PackageFetch),
        (packed("run", &large_site, None), ProgramErrorKind::PackageTooLarge),
        (packed("run", &unsaid, None), ProgramErrorKind::PackageTooLarge),
        (packed("run", &good_site, Some(sha256(b"other"))), ProgramErrorKind::PackageHash),
        (packed("run", &good_site, Some("short".to_owned())), ProgramErrorKind::PackageHash),
    ] {
        let (kind, message) = refused(&scene, &order).await;
        assert_eq!(kind, expected, "{message}");
    }
    assert_eq!((ill.hits().len(), gone.hits().len()), (3, 1), "what may pass is tried again");
    let left: Vec<_> = scene.data.path().join("packages").read_dir().expect("there").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    scene.end(agent).await;
}

#[actix_rt::test]
async fn more_than_the_node_takes_is_refused() {
    let scene = Scene::new();
    let mut config = scene.config();
    config.programs.max_programs = 1;
    let agent = Running::start(config);
    let (first, second) = (sh("echo ready; sleep 1000"), sh("echo"));
    scene.start(&first).await;
    scene.line(&first, "ready").await;
    scene.start(&second).await;
    assert_eq!(scene.reached(&second, ProgramState::Refused).await.error.map(|e| e.kind), Some(ProgramErrorKind::Busy));
    // A refusal is listed until the broker has it.
    let is_alone = || scene.broker.seen().heartbeats.last().is_some_and(|b| b.programs.as_deref() == Some(&[first.program]));
    until("only the first one is listed", is_alone).await;
    assert_eq!(scene.broker.seen().heartbeats.last().map(|b| b.process_count), Some(1));
    scene.exit(&first, 1_000).await;
    scene.reached(&first, ProgramState::Exited).await;
    scene.is_clean(&first).await;
    scene.end(agent).await;
}

#[test]
fn an_agent_that_is_root_warns_if_no_users_are_set() {
    use crate::agent::program::warnings;
    let open = ProgramSettings { are_allowed: true, users: Vec::new(), ..ProgramSettings::default() };
    let with = |users: &[&str]| ProgramSettings { users: users.iter().map(|user| (*user).to_owned()).collect(), ..open.clone() };
    assert!(warnings(&open, true)[0].contains("--application-users"));
    assert_eq!(warnings(&open, false), Vec::<String>::new());
    assert_eq!(warnings(&with(&["nobody"]), true), Vec::<String>::new());
    assert!(warnings(&with(&["nobody", "no-such-user"]), true)[0].contains("run as `no-such-user`: "));
    assert_eq!(warnings(&ProgramSettings { are_allowed: false, ..open.clone() }, true), Vec::<String>::new());
}
