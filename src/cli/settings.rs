//! The settings of `webloom broker` and `webloom agent` in a TOML file (`--config`).
//!
//! Every flag of the two commands may be in the file, and nothing else. There is no list of settings here: the flags are the list. A value
//! from the file becomes the default of its flag, so the environment overrides the file, and a flag overrides both.

use super::plain;
use super::value::why_unreadable;
use crate::private;
use crate::protocol::unknown::{letters, refusal};
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::path::PathBuf;
use toml::{Table, Value};

/// The commands with a settings file, and the environment variable that names it.
const COMMANDS: [(&str, &str); 2] = [("broker", "WEBLOOM_BROKER_CONFIG"), ("agent", "WEBLOOM_AGENT_CONFIG")];
const CONFIG: &str = "config";
/// Flags that are no settings.
const NONE: [&str; 3] = [CONFIG, "help", "version"];
/// In a file of an agent, the flags `--program-…` that limit programs are in a table: `programLimits.memory`.
const LIMITS: (&str, &str) = ("programLimits", "program");

/// Adds `--config` to the commands.
pub fn add(root: Command) -> Command {
    COMMANDS.into_iter().fold(root, |root, (name, variable)| {
        let help = "A TOML file with settings: each flag without its dashes, in camel case (token-file is tokenFile). A flag or a variable \
                    of the environment overrides it";
        let arg = Arg::new(CONFIG).long(CONFIG).env(variable).value_name("FILE").help(help);
        root.mut_subcommand(name, |command| command.arg(arg.value_parser(clap::value_parser!(PathBuf)).display_order(0)))
    })
}

/// A settings file that was read.
pub struct File {
    path: PathBuf,
    has_secret: bool,
}

impl File {
    /// Logs a warning if the file has a token or a password and other users may read it.
    pub fn warn_if_open(&self) {
        if self.has_secret {
            private::warn_if_open("token or password in the settings", &self.path);
        }
    }
}

/// Makes the settings of the file that the command line names the defaults of `fresh`. `root` has parsed that command line; `fresh` is
/// the same, before it has parsed anything. `None` if no file is named.
///
/// # Errors
/// The file cannot be read, or a setting in it is unknown or wrong.
pub fn read(fresh: Command, root: &Command, matches: &ArgMatches) -> Result<Option<(Command, File)>, String> {
    let Some((name, matches)) = matches.subcommand().filter(|(name, _)| COMMANDS.iter().any(|(known, _)| known == name)) else {
        return Ok(None);
    };
    let Some(path) = matches.get_one::<PathBuf>(CONFIG) else { return Ok(None) };
    let text = std::fs::read_to_string(path).map_err(|error| why_unreadable(path, &error))?;
    let table: Table = toml::from_str(&text).map_err(|error| {
        // Without the line itself: it may have a secret.
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        format!("{}: line {line}: {}", path.display(), error.message())
    })?;
    let of_file = |why: String| format!("{}: {why}", path.display());
    let command = root.find_subcommand(name).expect("it was parsed");
    let mut file = File { path: path.clone(), has_secret: false };
    let mut fresh = fresh;
    for (arg, values) in settings(command, table).map_err(of_file)? {
        file.has_secret |= arg.is_hide_env_values_set();
        if matches!(matches.value_source(arg.get_id().as_str()), Some(ValueSource::CommandLine | ValueSource::EnvVariable)) {
            continue;
        }
        let id = arg.get_id().clone();
        let set = |arg: Arg| values.apply(arg);
        let is_global = fresh.get_arguments().any(|arg| *arg.get_id() == id);
        fresh = if is_global { fresh.mut_arg(id, set) } else { fresh.mut_subcommand(name, |command| command.mut_arg(id, set)) };
    }
    Ok(Some((fresh, file)))
}

/// The flags that may be in the file.
fn flags(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| arg.get_long().is_some_and(|long| !NONE.contains(&long)))
}

/// The name of a flag in the file.
fn key(arg: &Arg) -> String {
    let mut words = arg.get_long().unwrap_or_default().split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |key, word| key + &capital(word))
}

fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
    first.to_uppercase() + rest
}

/// What a file sets a flag to.
struct Values {
    texts: Vec<String>,
    /// A list: its elements are not split again.
    is_list: bool,
}

impl Values {
    fn apply(self, arg: Arg) -> Arg {
        let arg = if self.is_list { arg.value_delimiter(None) } else { arg };
        arg.default_values(self.texts)
    }
}

/// The checked settings of a file.
fn settings(command: &Command, table: Table) -> Result<Vec<(&Arg, Values)>, String> {
    let known: Vec<String> = flags(command).map(key).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let mut found: Vec<(&Arg, Values)> = Vec::new();
    for (shown, name, value) in flat(table) {
        let Some(arg) = flags(command).find(|arg| letters(&key(arg)) == letters(&name)) else {
            return Err(refusal("setting", &shown, &known));
        };
        if found.iter().any(|(other, _)| other.get_id() == arg.get_id()) {
            return Err(format!("{} is set twice", key(arg)));
        }
        let is_secret = arg.is_hide_env_values_set();
        let values = values(arg, &value).map_err(|why| match is_secret {
            true => format!("{shown}: {why}"),
            false => format!("{shown} = {value}: {why}"),
        })?;
        found.push((arg, values));
    }
    Ok(found)
}

/// Each setting as it was written, its name without tables, and its value.
fn flat(table: Table) -> Vec<(String, String, Value)> {
    let one = |(key, value): (String, Value)| match value {
        Value::Table(limits) if letters(&key) == letters(LIMITS.0) => {
            limits.into_iter().map(|(part, value)| (format!("{key}.{part}"), LIMITS.1.to_owned() + &capital(&part), value)).collect()
        }
        value => vec![(key.clone(), key, value)],
    };
    table.into_iter().flat_map(one).collect()
}

fn values(arg: &Arg, value: &Value) -> Result<Values, String> {
    let is_switch = matches!(arg.get_action(), ArgAction::SetTrue);
    let texts = match value {
        Value::Boolean(yes) => vec![yes.to_string()],
        _ if is_switch => return Err("expected true or false".to_owned()),
        Value::Array(elements) if matches!(arg.get_action(), ArgAction::Append) => elements.iter().map(text).collect::<Result<_, _>>()?,
        Value::Array(_) => return Err("expected one value, not a list".to_owned()),
        one => vec![text(one)?],
    };
    let values = Values { texts, is_list: value.is_array() };
    if !is_switch && !values.texts.is_empty() {
        let flags = values.texts.iter().map(|text| format!("--{}={text}", arg.get_long().unwrap_or_default()));
        let probe = Command::new("").no_binary_name(true).disable_help_flag(true);
        let probe = probe.arg(if values.is_list { arg.clone().value_delimiter(None) } else { arg.clone() });
        probe.try_get_matches_from(flags).map_err(|error| why(&error))?;
    }
    Ok(values)
}

fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => Ok(value.to_string()),
        _ => Err("expected a text, a number, true or false".to_owned()),
    }
}

/// Why clap rejects a value, without the flag that its own text names: the value is from the file.
fn why(error: &clap::Error) -> String {
    match (std::error::Error::source(error), error.get(ContextKind::ValidValue)) {
        (Some(source), _) => plain(source.to_string()),
        (None, Some(ContextValue::Strings(all))) => format!("expected {}", all.join(" or ")),
        _ => "this value is not accepted".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;

    /// What the command has after `line`, with a file of this content: the raw values of all flags, and where they are from.
    fn parsed(line: &[&str], content: &str) -> Result<(Command, ArgMatches), String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("settings.toml");
        std::fs::write(&path, content).expect("written");
        let path = path.to_str().expect("text");
        let line = || ["webloom"].iter().chain(line).copied().chain(["--config", path]);
        let mut root = command();
        let matches = root.try_get_matches_from_mut(line()).expect("a command line");
        let (mut fresh, _) = read(command(), &root, &matches)?.expect("a file");
        let matches = fresh.try_get_matches_from_mut(line()).map_err(|error| error.to_string())?;
        Ok((fresh, matches))
    }

    fn raw(matches: &ArgMatches, id: &str) -> Vec<String> {
        let matches = matches.subcommand().expect("a command").1;
        matches.get_raw(id).into_iter().flatten().map(|value| value.to_string_lossy().into_owned()).collect()
    }

    fn error(command: &str, content: &str) -> String {
        let error = parsed(&[command], content).map(|_| ()).expect_err(content);
        error.split_once("settings.toml: ").map_or(error.clone(), |(_, why)| why.to_owned())
    }

    /// For each flag of both commands, whatever is added later.
    #[test]
    fn every_flag_may_be_in_the_file() {
        for name in ["broker", "agent"] {
            let mut root = command();
            root.build();
            let below = root.find_subcommand(name).expect("a command");
            let mut number_of_flags = 0;
            for arg in below.get_arguments().filter(|arg| arg.get_long().is_some_and(|long| !NONE.contains(&long))) {
                let (id, long) = (arg.get_id().as_str(), arg.get_long().expect("a flag"));
                let samples =
                    ["true", "7", "600", "127.0.0.1:7", "http://host.example:7", "host.example", "* delay=7", "keep", "name=value"];
                let is_taken =
                    |sample: &&&str| values(arg, &toml::from_str::<Table>(&format!("x = {}", quoted(sample))).expect("TOML")["x"]).is_ok();
                let sample = samples.iter().find(is_taken).unwrap_or_else(|| panic!("no sample is a value of --{long}"));
                for key in [key(arg), long.to_owned()] {
                    let (_, matches) = parsed(&[name], &format!("{key} = {}", quoted(sample))).unwrap_or_else(|why| panic!("{key}: {why}"));
                    assert_eq!(raw(&matches, id), [*sample], "{key} of {name}");
                }
                number_of_flags += 1;
            }
            assert!(number_of_flags > 20, "{number_of_flags}");
        }
    }

    fn quoted(sample: &str) -> String {
        if sample == "true" || sample.parse::<u32>().is_ok() { sample.to_owned() } else { format!("{sample:?}") }
    }

    #[test]
    fn a_flag_overrides_the_file_and_the_file_overrides_the_default() {
        let file = "maxProcessCount = 7\ngroup = 'file'\nprogramLimits = { memory = 9, cpuSeconds = 8 }\nchangeIpCommand = ['redial', '-x y']\n\
                    packageHosts = 'a.example,b.example'\ncaFile = 'ca.pem'";
        let (_, matches) = parsed(&["agent", "--group", "flag"], file).expect("settings");
        for (id, expected) in [
            ("max_process_count", &["7"][..]),
            ("group", &["flag"]),
            ("program_memory", &["9"]),
            ("program_cpu_seconds", &["8"]),
            ("change_ip_command", &["redial", "-x y"]),
            ("package_hosts", &["a.example", "b.example"]),
            ("ca_file", &["ca.pem"]),
        ] {
            assert_eq!(raw(&matches, id), expected, "{id}");
        }
        let (_, matches) =
            parsed(&["broker", "--keep-runs", "5"], "keepRuns = 6\nkeepDays = 1.5\ntoken = []\nacceptLostData = true").expect("settings");
        assert_eq!((raw(&matches, "keep_runs"), raw(&matches, "keep_days")), (vec!["5".to_owned()], vec!["1.5".to_owned()]));
        assert!(matches.subcommand().expect("a command").1.get_flag("accept_lost_data"));
        let (_, matches) = parsed(&["broker"], "schedulerNetIgnore = []\nacceptLostData = false").expect("settings");
        assert_eq!(raw(&matches, "scheduler_net_ignore"), [""; 0]);
        assert!(!matches.subcommand().expect("a command").1.get_flag("accept_lost_data"));
    }

    #[test]
    fn what_is_wrong_in_a_file_is_named() {
        for (command, content, expected) in [
            ("agent", "maxProcesCount = 7", "unknown setting `maxProcesCount`. Did you mean `maxProcessCount`?"),
            ("broker", "tokn_file = 'x'", "unknown setting `tokn_file`. Did you mean `tokenFile`?"),
            ("broker", "config = 'x'", "unknown setting `config`. "),
            ("agent", "programLimits = { ram = 1 }", "unknown setting `programLimits.ram`. "),
            ("broker", "[listen]\nport = 1", "listen = { port = 1 }: expected a text, a number, true or false"),
            ("agent", "heartbeat = 'often'", "heartbeat = \"often\": a whole number is expected, for example 3"),
            ("agent", "applications = 'maybe'", "applications = \"maybe\": expected true or false"),
            ("broker", "acceptLostData = 1", "acceptLostData = 1: expected true or false"),
            ("broker", "leaseMs = 7", "leaseMs = 7: 7 is not in 300..=600000"),
            ("broker", "listen = ['a', 'b']", "listen = [\"a\", \"b\"]: expected one value, not a list"),
            ("broker", "keepRuns = 1\nkeep-runs = 2", "keepRuns is set twice"),
        ] {
            let error = error(command, content);
            assert!(error.starts_with(expected), "{content}: {error}");
        }
        let error = error("agent", "token = ['secret7']");
        assert!(error.starts_with("token: expected one value") && !error.contains("secret7"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_toml_or_not_there_is_named() {
        let broken = parsed(&["broker"], "listen = ").map(|_| ()).expect_err("no TOML");
        assert!(broken.contains("settings.toml: ") && broken.contains("line 1"), "{broken}");
        let mut root = command();
        let matches = root.try_get_matches_from_mut(["webloom", "agent", "--config", "/nowhere/agent.toml"]).expect("a command line");
        let missing = read(command(), &root, &matches).map(|_| ()).expect_err("no file");
        assert!(missing.contains("/nowhere/agent.toml"), "{missing}");
    }
}
