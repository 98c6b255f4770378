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
    ("brokers list", &["webloom brokers list --broker http://a.example:55626,http://b.example:55626", "webloom brokers list -o wide"]),
    ("brokers drain", &["webloom brokers drain http://b.example:55626", "webloom brokers drain 0199c3f2 --no-wait"]),
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
    ("token list", &["webloom token list", "webloom token list -o json"]),
    ("token revoke", &["webloom token revoke otto"]),
    ("job hook list", &["webloom job hook list nightly"]),
    ("job hook delete", &["webloom job hook delete nightly github"]),
    ("audit", &["webloom audit --kind job --from 2026-12-24", "webloom audit --object nightly", "webloom audit --caller otto -o json"]),
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
    ("version", &["webloom version"]),
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
    ("job enable", &["webloom job enable nightly"]),
    ("job delete", &["webloom job delete nightly"]),
    ("job restore", &["webloom job restore nightly", "webloom job restore 3e4f5a6b"]),
    ("job purge", &["webloom job purge nightly"]),
    ("job redrive", &["webloom job redrive nightly --dry-run", "webloom job redrive nightly"]),
    ("job export", &["webloom job export --group reports > jobs.yaml"]),
    ("job import", &["webloom job import --file jobs.yaml --dry-run"]),
    ("job data set", &["webloom job data set nightly '{\"since\": 42}'", "webloom job data set nightly @state.json"]),
    ("job data get", &["webloom job data get nightly", "webloom job data get nightly -o json"]),
    ("job data clear", &["webloom job data clear nightly"]),
    ("run list", &["webloom run list --state failed --from -24h", "webloom run list --job nightly -o wide --utc"]),
    ("run show", &["webloom run show --job nightly", "webloom run show 8e9ba83b -o json"]),
    ("run watch", &["webloom run watch --job nightly"]),
    ("run why", &["webloom run why --job nightly"]),
    ("run results", &["webloom run results --job nightly > results.jsonl"]),
    ("run logs", &["webloom run logs --job nightly --follow --level warning"]),
    ("run stop", &["webloom run stop 8e9ba83b"]),
    ("run pause", &["webloom run pause --job nightly"]),
    ("run resume", &["webloom run resume --job nightly"]),
    ("run retry", &["webloom run retry 8e9ba83b", "webloom run retry --job nightly"]),
    ("run discard", &["webloom run discard 8e9ba83b --site example.com --dry-run", "webloom run discard --job titles --min-depth 5"]),
    ("run blocks", &["webloom run blocks 8e9ba83b --limit 200"]),
    ("run instances", &["webloom run instances --job report", "webloom run instances 8e9ba83b -o wide"]),
    ("run status", &["webloom run status --job titles"]),
    ("run requests", &["webloom run requests 8e9ba83b --failed --site example.com --status 503"]),
    ("run requeue", &["webloom run requeue 8e9ba83b --kind timeout --dry-run"]),
    ("run why-url", &["webloom run why-url 8e9ba83b https://example.com/page"]),
    ("run redrive", &["webloom run redrive --group reports --from -24h --dry-run"]),
    ("run sites", &["webloom run sites --job titles", "webloom run sites 8e9ba83b -o json"]),
    ("site list", &["webloom site list --held", "webloom site list --name example.org -o wide"]),
    ("site hold", &["webloom site hold example.org --for 10m", "webloom site hold http://127.0.0.1:8000 --until 2026-12-24T18:00:00Z"]),
    ("site release", &["webloom site release example.org"]),
    ("node list", &["webloom node list -o wide"]),
    ("node show", &["webloom node show 3e4f5a6b", "webloom node show builder-1 -o json"]),
    ("node enable", &["webloom node enable builder-1"]),
    ("node disable", &["webloom node disable builder-1 --reason 'the disk is full'"]),
    ("node exit", &["webloom node exit builder-1 --reason 'the machine moves'"]),
    ("node remove", &["webloom node remove builder-1"]),
    ("node history", &["webloom node history builder-1 --from -2h"]),
    ("node drain", &["webloom node drain 3e4f5a6b --reason 'new kernel'"]),
    ("worker list", &["webloom worker list --online"]),
    ("worker show", &["webloom worker show reports-1"]),
    ("worker enable", &["webloom worker enable reports-1"]),
    ("worker disable", &["webloom worker disable reports-1 --reason 'a test'"]),
    ("worker drain", &["webloom worker drain reports-1 --reason 'a new version'"]),
    ("worker allow", &["webloom worker allow reports-1"]),
    ("worker forget", &["webloom worker forget reports-1"]),
    ("worker watches", &["webloom worker watches", "webloom worker watches --limit 20 --utc"]),
    ("worker kick", &["webloom worker kick reports-1 --reason 'takes all memory'"]),
    ("group disable", &["webloom group disable reports --reason holidays"]),
    ("group enable", &["webloom group enable reports"]),
    ("group list", &["webloom group list"]),
    ("group create", &["webloom group create reports --description 'reports for the accountants'"]),
    ("group show", &["webloom group show reports"]),
    ("group rename", &["webloom group rename reports accounts"]),
    ("group delete", &["webloom group delete reports"]),
    ("package push", &["webloom package push hello.tar.gz"]),
    ("package list", &["webloom package list", "webloom package list -o wide"]),
    ("package remove", &["webloom package remove hello.tar.gz", "webloom package remove 3e4f5a6b"]),
    (
        "alert create",
        &[
            "webloom alert create --name ops --webhook https://chat.example/hook --event failed --event missed",
            "webloom alert create --name mail --mail ops@example.com --group reports",
        ],
    ),
    ("alert test", &["webloom alert test ops"]),
    ("alert list", &["webloom alert list"]),
    ("alert show", &["webloom alert show ops"]),
    ("alert update", &["webloom alert update ops --event failed --event late", "webloom alert update ops --disabled"]),
    ("alert delete", &["webloom alert delete ops"]),
    ("alert events", &["webloom alert events --limit 20"]),
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

    /// The commands without subcommands, by their words.
    fn leaves<'a>(command: &'a Command, words: &str, found: &mut Vec<(String, &'a Command)>) {
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            let words = format!("{words} {}", below.get_name());
            match below.has_subcommands() {
                true => leaves(below, &words, found),
                false => found.push((words.trim_start().to_owned(), below)),
            }
        }
    }

    #[test]
    fn every_command_has_examples() {
        let root = command();
        let mut found = Vec::new();
        leaves(&root, "", &mut found);
        let without = found.iter().filter(|(_, leaf)| !leaf.get_after_help().is_some_and(|help| help.to_string().contains("Examples:")));
        assert_eq!(without.map(|(words, _)| words.as_str()).collect::<Vec<_>>(), [""; 0], "commands without an example");
        let unknown = EXAMPLES.iter().map(|(words, _)| *words).filter(|words| !found.iter().any(|(leaf, _)| leaf == words));
        assert_eq!(unknown.collect::<Vec<_>>(), [""; 0], "examples of no command");
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
