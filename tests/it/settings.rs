//! Settings in a file: broker and agent take them, the environment overrides them, and a flag overrides both.

use crate::support::api::Api;
use crate::support::process::{Process, WEBLOOM};
use crate::support::{journey, until};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn webloom(command: &str, settings: &Path, text: &str) -> Command {
    std::fs::write(settings, text).expect("written");
    let mut webloom = Command::new(WEBLOOM);
    webloom.arg(command).arg("--config").arg(settings).env_remove("WEBLOOM_TOKEN").stdin(Stdio::null());
    webloom
}

#[test]
fn flags_override_the_environment_and_the_environment_overrides_the_file() {
    journey(async {
        let home = tempfile::tempdir().expect("a folder");
        let data = home.path().join("data");
        std::fs::create_dir(&data).expect("a folder");
        let text = format!(
            "listen = '127.0.0.1:0'\ndatabase = '{}/of-the-file.db'\ntoken = ['admin:of-the-file', 'agent:agent-1']\n",
            data.display()
        );
        let mut broker = webloom("broker", &home.path().join("broker.toml"), &text);
        let mut broker = Process(broker.stdout(Stdio::piped()).spawn().expect("it starts"));
        let line = BufReader::new(broker.0.stdout.take().expect("piped")).lines().next().expect("a line").expect("text");
        let url = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("unexpected: {line}"));
        let mut api = Api::new(url);
        assert_eq!(api.get("/api/v1/nodes").await.0, 401);
        api.token = Some("of-the-file".to_owned());
        assert!(data.join("of-the-file.db").exists());

        let text = format!(
            "broker = '{url}'\ntoken = 'agent:agent-1'\ndataDir = '{}'\nname = 'of the file'\ngroup = 'of-the-file'\nnode-type = 'Web'\n",
            data.display()
        );
        let mut agent = webloom("agent", &home.path().join("agent.toml"), &text);
        agent.args(["--name", "of the flag"]).env("WEBLOOM_NODE_NAME", "of the environment").env("WEBLOOM_GROUP", "of-the-environment");
        let _agent = Process(agent.spawn().expect("it starts"));
        let node = until("the agent", || async {
            let (_, nodes) = api.get("/api/v1/nodes").await;
            nodes["items"].as_array().and_then(|nodes| nodes.first().cloned())
        })
        .await;
        let of_node = ["name", "group", "nodeType"].map(|member| node[member].as_str().unwrap_or_default().to_owned());
        assert_eq!(of_node, ["of the flag", "of-the-environment", "Web"], "{node}");
        assert!(broker.terminate().success());
    });
}

#[test]
fn a_wrong_file_is_refused_before_anything_starts() {
    let home = tempfile::tempdir().expect("a folder");
    let settings = home.path().join("settings.toml");
    for (command, text, expected) in [
        ("broker", "tokenFyle = 'x'", "settings.toml: unknown setting `tokenFyle`. Did you mean `tokenFile`?"),
        ("agent", "maxProcessCount = 'many'", "settings.toml: maxProcessCount = \"many\": a whole number is expected, for example 3"),
        ("agent", "maxProcessCount = 0", "maxProcessCount: must be 1 to 1000, not 0"),
    ] {
        // If it starts nevertheless, it does not end by itself.
        let mut limited = Command::new("timeout");
        let command = webloom(command, &settings, text);
        limited
            .arg("60")
            .arg(command.get_program())
            .args(command.get_args())
            .env_remove("WEBLOOM_TOKEN")
            .stdin(Stdio::null())
            .current_dir(home.path());
        let Output { status, stderr, .. } = limited.output().expect("it runs");
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(!status.success() && stderr.contains(expected), "{text}: {stderr}");
    }
}
