//! Errors of commands and their messages: what is wrong, what was expected, what to do.

use super::say_error;
use super::words::kebab;
use crate::protocol::problem::Problem;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use std::process::ExitCode;

/// Exit code of a program whose reader has closed the pipe: 128 and the number of SIGPIPE, as in shells.
const UNREAD: u8 = 141;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The broker rejected it or could not be reached, or nothing has that name: exit code 1.
    Refused(String),
    /// The command line, or a file that it names, cannot be parsed: exit code 2.
    Usage(String),
    /// The broker does not allow a value: exit code 2 if it came from the command line, else 1.
    Invalid {
        /// The member of the body or of the query: `schedule.triggers[0].cron`.
        field: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The reader closed the pipe (`| head`): no message is printed.
    Unread,
}

impl From<String> for Failure {
    /// The text of a program that ended early.
    fn from(why: String) -> Self {
        if why.ends_with(crate::crawl::UNREAD) { Self::Unread } else { Self::Refused(why) }
    }
}

impl Failure {
    /// Converts a problem of the broker.
    pub fn of(problem: Problem) -> Self {
        match problem {
            Problem { status: 400 | 422, field: Some(field), detail, .. } => Self::Invalid { field, detail },
            // For "not found" and "conflict" the detail is a complete sentence.
            Problem { status: 404 | 409, detail, .. } => Self::Refused(detail),
            Problem { status: 400 | 422, detail, .. } => Self::Usage(detail),
            Problem { title, detail, .. } => Self::Refused(format!("{title}: {detail}")),
        }
    }

    /// Prints the error for the user, and returns the exit code. `line` is the command that ran, with its arguments.
    pub fn tell(self, line: Option<(&Command, &ArgMatches)>) -> ExitCode {
        let (why, code) = match self {
            Self::Refused(why) => (why, 1),
            Self::Usage(why) => (why, 2),
            Self::Invalid { field, detail } => match line.and_then(|(command, matches)| source(command, matches, &field)) {
                Some(source) => (format!("{source}: {detail}"), 2),
                None => (format!("{detail} ({field})"), 1),
            },
            Self::Unread => return ExitCode::from(UNREAD),
        };
        say_error(&why);
        ExitCode::from(code)
    }
}

/// Members whose flags are not named after their last part. A name that ends in a dot has members of any name.
const FLAGS: [(&str, &[&str]); 31] = [
    ("jobType", &["kind"]),
    ("properties.FullClassName", &["class"]),
    ("properties.Arguments", &["arguments"]),
    ("properties.Package", &["package"]),
    ("properties.Application", &["application"]),
    ("properties.NodeCount", &["node-count"]),
    ("properties.NodeGroup", &["node-group"]),
    ("properties.Os", &["os"]),
    ("properties.WorkerGroup", &["worker-group"]),
    ("properties.WorkerVersion", &["worker-version"]),
    ("properties.WorkerTags", &["worker-tag"]),
    ("properties.WorkerStrategy", &["strategy"]),
    ("properties.WorkerKey", &["key"]),
    ("properties.NoWorker", &["wait-for-worker"]),
    ("properties", &["property"]),
    ("properties.", &["property"]),
    ("schedule", &["cron", "every", "at"]),
    ("misfire.policy", &["misfire"]),
    ("misfire.window", &["misfire-window"]),
    ("retry.limit", &["retry"]),
    ("retry.delay", &["retry-delay"]),
    ("task.arguments", &["payload"]),
    ("task.group", &["worker-group"]),
    ("task.version", &["worker-version"]),
    ("task.tags", &["worker-tag"]),
    ("callback.headers.", &["header"]),
    ("callback", &["url"]),
    ("arguments", &["payload", "arguments"]),
    ("idempotencyKey", &["key"]),
    ("kind", &["kind", "webhook", "mail"]),
    ("target", &["webhook", "mail"]),
];

/// The part of the command line that set a member of the body: `--cron "61 * * * *"`, or the file. `None` if there is none.
fn source(command: &Command, matches: &ArgMatches, field: &str) -> Option<String> {
    let values = |arg: &Arg| -> Vec<String> {
        let id = arg.get_id().as_str();
        let is_given = matches!(matches.try_contains_id(id), Ok(true)) && matches.value_source(id) != Some(ValueSource::DefaultValue);
        let given = is_given.then(|| matches.try_get_raw(id).ok().flatten()).flatten();
        given.into_iter().flatten().map(|value| value.to_string_lossy().into_owned()).collect()
    };
    let of_flag = |flag: &str| command.get_arguments().find(|arg| arg.get_long() == Some(flag));
    // `schedule.triggers[1].cron` becomes `schedule.triggers.cron` of the second trigger.
    let path: String = field.split('[').map(|part| part.split_once(']').map_or(part, |(_, rest)| rest)).collect();
    let args: Vec<&Arg> = flags(&path).iter().filter_map(|flag| of_flag(flag)).collect();
    let positional = || command.get_arguments().find(|arg| arg.is_positional() && arg.get_id() == path.as_str());
    let given = args.iter().find(|arg| !values(arg).is_empty()).copied();
    let file = of_flag("file").and_then(|file| values(file).pop());
    match (given.or_else(positional), file) {
        (Some(arg), _) => {
            let name = arg.get_long().map_or_else(|| arg.get_id().as_str().to_uppercase(), |long| format!("--{long}"));
            let value = chosen(&values(arg), arg, field, |flag| of_flag(flag).map_or(0, |arg| values(arg).len()))?;
            let is_long = ["--secret", "--body"].contains(&name.as_str());
            Some(if is_long { format!("{name} ({} characters)", value.chars().count()) } else { format!("{name} \"{value}\"") })
        }
        (None, Some(file)) => Some(format!("{file}: {field}")),
        (None, None) if args.is_empty() => None,
        (None, None) => Some(args.iter().filter_map(|arg| arg.get_long()).map(|flag| format!("--{flag}")).collect::<Vec<_>>().join(" or ")),
    }
}

/// The flags that may set this member.
fn flags(path: &str) -> Vec<String> {
    let is = |known: &str| match known.strip_suffix('.') {
        Some(_) => path.starts_with(known),
        None => path == known || path.ends_with(&format!(".{known}")),
    };
    let known = FLAGS.iter().filter(|(known, _)| is(known)).max_by_key(|(known, _)| known.len());
    known.map_or_else(
        || vec![kebab(path.rsplit('.').next().unwrap_or(path))],
        |(_, flags)| flags.iter().map(|flag| (*flag).to_owned()).collect(),
    )
}

/// Which of several values is meant: the trigger with this number, or the property with this key.
fn chosen(values: &[String], arg: &Arg, field: &str, count: impl Fn(&str) -> usize) -> Option<String> {
    let index = field.split_once('[').and_then(|(_, rest)| rest.split_once(']')).and_then(|(index, _)| index.parse::<usize>().ok());
    // Triggers are numbered in this order: all of --cron, then all of --every, then all of --at.
    let index = index.unwrap_or(0);
    let index = match arg.get_long() {
        Some("every") => index.saturating_sub(count("cron")),
        Some("at") => index.saturating_sub(count("cron") + count("every")),
        _ => index,
    };
    let key = field.rsplit('.').next().unwrap_or(field);
    let of_key = values.iter().find(|value| value.starts_with(&format!("{key}=")) || value.starts_with(&format!("{key}:")));
    of_key.or_else(|| values.get(index)).or_else(|| values.first()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;

    /// How this command line names the source of this member.
    fn of(line: &[&str], field: &str) -> Option<String> {
        let mut root = command();
        let matches = root.try_get_matches_from_mut([&["webloom"], line].concat()).unwrap_or_else(|e| panic!("{e}"));
        let (leaf, matches) = crate::cli::leaf(&root, &matches);
        source(leaf, matches, field)
    }

    #[test]
    fn a_flag_is_named_with_its_value() {
        let create = [
            "job",
            "create",
            "--name",
            "a",
            "--cron",
            "61 * * * *",
            "--cron",
            "x",
            "--every",
            "5m",
            "--at",
            "+2h",
            "--retry",
            "3",
            "-p",
            "A=b",
            "-p",
            "ThreadNum=x",
        ];
        for (field, expected) in [
            ("name", "--name \"a\""),
            ("schedule.triggers[0].cron", "--cron \"61 * * * *\""),
            ("schedule.triggers[1].cron", "--cron \"x\""),
            ("schedule.triggers[2].every", "--every \"5m\""),
            ("schedule.triggers[3].at", "--at \"+2h\""),
            ("policies.retry.limit", "--retry \"3\""),
            ("properties.FullClassName", "--class"),
            ("properties.ThreadNum", "--property \"ThreadNum=x\""),
            ("schedule", "--cron \"61 * * * *\""),
            ("callback.method", "--method"),
            ("callback.expect[0]", "--expect"),
            ("jobType", "--kind"),
            ("callback.headers.X-A", "--header"),
            ("callback.url", "--url"),
            ("task.group", "--worker-group"),
            ("group", "--group"),
            ("policies.lateAfter", "--late-after"),
        ] {
            assert_eq!(of(&create, field).as_deref(), Some(expected), "{field}");
        }
        assert_eq!(of(&create, "successors[0].job"), None);
        assert_eq!(of(&["run", "discard", "x", "--min-depth", "0"], "all").as_deref(), Some("--all"), "it is not given");
        assert_eq!(of(&["group", "create", "x"], "name").as_deref(), Some("NAME \"x\""));
        assert_eq!(of(&["alert", "create", "--name", "x"], "kind").as_deref(), Some("--webhook or --mail"));
        assert_eq!(of(&["alert", "create", "--mail", "x"], "target").as_deref(), Some("--mail \"x\""));
        assert_eq!(of(&["job", "trigger", "x"], "properties.FullClassName"), None, "that is the job's, not the command line's");
    }

    #[test]
    fn what_a_file_holds_is_named_by_its_member() {
        let update = ["job", "update", "a", "-f", "job.yaml", "--zone", "UTC"];
        assert_eq!(of(&update, "schedule.zone").as_deref(), Some("--zone \"UTC\""));
        assert_eq!(of(&update, "schedule.triggers[0].cron").as_deref(), Some("job.yaml: schedule.triggers[0].cron"));
        assert_eq!(of(&update, "successors[0].job").as_deref(), Some("job.yaml: successors[0].job"));
    }

    #[test]
    fn a_problem_is_told_in_its_own_words() {
        let text = |failure: Failure| match failure {
            Failure::Refused(text) => (1, text),
            Failure::Usage(text) => (2, text),
            Failure::Invalid { field, detail } => (0, format!("{field}: {detail}")),
            Failure::Unread => (141, String::new()),
        };
        assert_eq!(text(Failure::of(Problem::invalid("cron", "no such minute"))), (0, "cron: no such minute".to_owned()));
        assert_eq!(text(Failure::of(Problem::conflict("x", "it is over"))), (1, "it is over".to_owned()));
        assert_eq!(text(Failure::of(Problem::malformed("no JSON"))), (2, "no JSON".to_owned()));
        assert_eq!(text(Failure::of(Problem::busy("the queue is full"))), (1, "Come again in a moment: the queue is full".to_owned()));
    }
}
