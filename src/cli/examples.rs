//! Examples at the end of `--help`, in one place, so that a test can parse each of them like the program.

use clap::Command;

/// A command, and lines that can be typed exactly like this.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "broker",
        &[
            "webloom broker --database /var/lib/webloom/webloom.db",
            "webloom broker --site '*.example.org delay=5000' --site 'slow.example.com delay=60000 connections=1'",
            "webloom broker --config /etc/webloom/broker.toml",
            "webloom broker --listen 0.0.0.0:55626 --advertise http://broker.example:55626 --token admin:SECRET --token agent:OTHER",
        ],
    ),
    ("brokers", &["webloom brokers --broker http://a.example:55626,http://b.example:55626"]),
    (
        "agent",
        &[
            "webloom agent --broker http://broker.example:55626 --token SECRET --data-dir /var/lib/webloom-agent",
            "webloom agent --config agent.toml --applications",
        ],
    ),
    ("status", &["webloom status", "webloom status --broker http://broker.example:55626 --token readonly:SECRET -o json"]),
    (
        "crawl",
        &[
            "webloom crawl https://example.com/ --output pages.jsonl --depth 3",
            "webloom crawl https://example.com/ --output pages.jsonl --resume",
        ],
    ),
    (
        "token create",
        &["webloom token create otto --role operator --group reports --expires-in 90d", "webloom token create build-server --role editor"],
    ),
    ("job hook create", &["webloom job hook create nightly github"]),
    ("audit", &["webloom audit --kind job --from 2026-12-24", "webloom audit --caller otto -o json"]),
    ("demo", &["webloom demo --exit"]),
    ("backup", &["webloom backup --database /var/lib/webloom/webloom.db --to /backup/webloom-monday"]),
    (
        "restore",
        &[
            "webloom restore --from /backup/webloom-monday --check",
            "webloom restore --from /backup/webloom-monday --database /var/lib/webloom/webloom.db",
        ],
    ),
    ("migrate", &["webloom migrate --database /var/lib/webloom/webloom.db --check", "webloom migrate --database webloom.db"]),
    ("store copy", &["webloom store copy --from /var/lib/webloom/webloom.db --to postgres://webloom@db.example/webloom"]),
    ("verify-history", &["webloom verify-history --database webloom.db --job nightly"]),
    (
        "completions",
        &[
            "webloom completions bash > /etc/bash_completion.d/webloom",
            "webloom completions fish > ~/.config/fish/completions/webloom.fish",
        ],
    ),
    ("man", &["webloom man /usr/local/share/man/man1"]),
    (
        "job create",
        &[
            "webloom job create --name nightly --handler reports.build --payload '{\"days\": 1}' --cron '0 2 * * *' --zone Europe/Berlin",
            "webloom job create --name ping --url https://example.com/health --every 5m --retry 2 --timeout 10s",
            "webloom job create --name titles --class demo.Titles --arguments https://example.com/ --cron '*/15 * * * *'",
            "webloom job create --file job.yaml --dry-run",
        ],
    ),
    ("job update", &["webloom job update nightly --cron '0 3 * * *' --retry 3", "webloom job update nightly --no-schedule"]),
    ("job list", &["webloom job list --enabled --sort nextFire", "webloom job list -o name --group reports"]),
    ("job show", &["webloom job show nightly", "webloom job show 3e4f5a6b -o yaml"]),
    ("job trigger", &["webloom job trigger nightly --watch", "webloom job trigger nightly --payload '{\"days\": 7}' --key 2026-w48"]),
    ("job next", &["webloom job next nightly", "webloom job next '0 9 * * MON' --zone America/New_York -n 3"]),
    ("job preview", &["webloom job preview --cron '30 2 * * *' --zone Europe/Berlin --after 2026-03-28"]),
    ("job fires", &["webloom job fires nightly --from -7d --verdict missed"]),
    ("job why", &["webloom job why nightly --at 2026-11-21T02:00:00Z"]),
    ("job history", &["webloom job history nightly"]),
    ("job backfill", &["webloom job backfill nightly --from 2026-11-01 --to 2026-11-08 --dry-run"]),
    ("job disable", &["webloom job disable nightly --reason 'the database moves' --stop"]),
    ("job export", &["webloom job export --group reports > jobs.yaml"]),
    ("job import", &["webloom job import --file jobs.yaml --dry-run"]),
    ("job data set", &["webloom job data set nightly '{\"since\": 42}'", "webloom job data set nightly @state.json"]),
    ("run list", &["webloom run list --state failed --from -24h", "webloom run list --job nightly -o wide --utc"]),
    ("run show", &["webloom run show --job nightly", "webloom run show 8e9ba83b -o json"]),
    ("run watch", &["webloom run watch --job nightly"]),
    ("run why", &["webloom run why --job nightly"]),
    ("run logs", &["webloom run logs --job nightly --follow --level warning"]),
    ("run stop", &["webloom run stop 8e9ba83b"]),
    ("run pause", &["webloom run pause --job nightly"]),
    ("run requests", &["webloom run requests 8e9ba83b --failed --site example.com --status 503"]),
    ("run requeue", &["webloom run requeue 8e9ba83b --kind timeout --dry-run"]),
    ("run why-url", &["webloom run why-url 8e9ba83b https://example.com/page"]),
    ("run redrive", &["webloom run redrive --group reports --from -24h --dry-run"]),
    ("run sites", &["webloom run sites --job titles", "webloom run sites 8e9ba83b -o json"]),
    ("site list", &["webloom site list --held", "webloom site list --name example.org -o wide"]),
    ("site hold", &["webloom site hold example.org --for 10m", "webloom site hold http://127.0.0.1:8000 --until 2026-12-24T18:00:00Z"]),
    ("site release", &["webloom site release example.org"]),
    ("node list", &["webloom node list -o wide"]),
    ("node drain", &["webloom node drain 3e4f5a6b --reason 'new kernel'"]),
    ("worker list", &["webloom worker list --online"]),
    ("worker kick", &["webloom worker kick reports-1 --reason 'takes all memory'"]),
    ("group disable", &["webloom group disable reports --reason holidays"]),
    ("package push", &["webloom package push hello.tar.gz"]),
    (
        "alert create",
        &[
            "webloom alert create --name ops --webhook https://chat.example/hook --event failed --event missed",
            "webloom alert create --name mail --mail ops@example.com --group reports",
        ],
    ),
    ("alert test", &["webloom alert test ops"]),
];

/// Adds the examples of this command and of all its subcommands.
pub fn add(command: Command, words: &str) -> Command {
    let found = EXAMPLES.iter().find(|(name, _)| *name == words);
    let command = match found {
        Some((_, lines)) => command.after_help(format!("Examples:\n  {}", lines.join("\n  "))),
        None => command,
    };
    command.mut_subcommands(|below| {
        let words = if words.is_empty() { below.get_name().to_owned() } else { format!("{words} {}", below.get_name()) };
        add(below, &words)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;

    /// The words of a line, with quotes as in a shell; redirections are left out.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
        for c in line.split(" > ").next().unwrap_or_default().chars() {
            match c {
                '\'' => is_quoted = !is_quoted,
                ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
                c => word.push(c),
            }
        }
        words.push(word);
        words
    }

    #[test]
    fn every_example_can_be_typed() {
        for (name, lines) in EXAMPLES {
            for line in *lines {
                assert!(line.starts_with(&format!("webloom {name}")), "{line} stands at {name}");
                if let Err(error) = command().try_get_matches_from(words(line)) {
                    panic!("{line}: {error}");
                }
            }
        }
    }

    #[test]
    fn help_shows_them() {
        let mut command = command();
        command.build();
        let list = command.find_subcommand_mut("job").and_then(|job| job.find_subcommand_mut("list")).unwrap();
        let help = list.render_help().to_string();
        assert!(help.contains("Examples:\n  webloom job list --enabled"), "{help}");
        let place = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text} in {help}"));
        assert!(
            place("--sort") < place("--broker") && place("--broker") < place("--ca-file"),
            "what is for all commands comes last: {help}"
        );
    }
}
