//! `webloom agent`

use super::telemetry::TelemetryArgs;
use crate::agent;
use crate::config::agent::AgentLayer;
use crate::config::programs::{AtStop, ProgramLayer};
use crate::open_files;
use crate::private;
use crate::protocol::application::ProgramLimits;
use crate::sdk::stop_signal;
use clap::Args as ClapArgs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Flags of `webloom agent`.
#[derive(ClapArgs)]
pub struct Args {
    /// The broker's URL; for several brokers on one database all URLs, separated by commas [default: http://localhost:55626/]
    #[arg(long, env = "WEBLOOM_BROKER")]
    broker: Option<String>,
    /// The token with which the agent authenticates
    #[arg(long, env = "WEBLOOM_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Concurrent blocks [default: 5]
    #[arg(long, env = "WEBLOOM_MAX_PROCESS_COUNT")]
    max_process_count: Option<u32>,
    /// Concurrent sites with a pace of their own, besides these blocks [default: 512]
    #[arg(long, env = "WEBLOOM_MAX_SITES")]
    max_sites: Option<u32>,
    /// Concurrent requests, to all sites with a pace of their own [default: 256]
    #[arg(long, env = "WEBLOOM_MAX_CONNECTIONS")]
    max_connections: Option<u32>,
    /// MB of memory for bodies over 256 KiB and for results that wait to be reported, of all blocks together [default: 256]
    #[arg(long, env = "WEBLOOM_MEMORY_MB")]
    memory_mb: Option<u32>,
    /// Seconds between heartbeats [default: 5]
    #[arg(long, env = "WEBLOOM_HEARTBEAT")]
    heartbeat: Option<u64>,
    /// Retries of a download after the first try [default: 3]
    #[arg(long, env = "WEBLOOM_RETRY_DOWNLOAD")]
    retry_download: Option<u32>,
    /// The group that this node belongs to [default: default]
    #[arg(long, env = "WEBLOOM_GROUP")]
    group: Option<String>,
    /// Console or Web [default: Console]
    #[arg(long, env = "WEBLOOM_NODE_TYPE")]
    node_type: Option<String>,
    /// A name for people: 1 to 100 characters [default: the host's name]
    #[arg(long, env = "WEBLOOM_NODE_NAME")]
    name: Option<String>,
    /// This node's id [default: stored in the file node-id in the data directory]
    #[arg(long, env = "WEBLOOM_NODE_ID")]
    node_id: Option<String>,
    /// The folder for the agent's persistent data [default: the working directory]
    #[arg(long, env = "WEBLOOM_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// The program that changes this machine's IP address, and its arguments, separated by blanks; run without a shell
    #[arg(long, env = "WEBLOOM_CHANGE_IP_COMMAND", value_delimiter = ' ')]
    change_ip_command: Option<Vec<String>>,
    /// The IP address to report, where the broker cannot see it
    #[arg(long, env = "WEBLOOM_IP")]
    ip: Option<String>,
    /// A page or mail address, so that owners of sites can contact you: in the User-Agent of jobs without their own [default: none]
    #[arg(long, env = "WEBLOOM_CONTACT", value_name = "URL")]
    contact: Option<String>,
    /// Resolve names with these DNS servers (ADDRESS or ADDRESS:PORT), or `system` for the system's resolver, without a cache of answers
    /// [default: those of the system, with a cache]
    #[arg(long, env = "WEBLOOM_NAME_SERVERS", value_name = "SERVER", value_delimiter = ',')]
    name_servers: Option<Vec<String>>,
    /// Private, loopback and link-local targets that downloads may go to, besides the origins of their run: networks like 10.0.0.0/8,
    /// addresses, host, host:port, *.suffix [default: none]
    #[arg(long, env = "WEBLOOM_DOWNLOAD_ALLOW", value_delimiter = ',')]
    download_allow: Option<Vec<String>>,
    /// Targets that downloads may not go to, whatever other settings allow; written like those of --download-allow [default: none]
    #[arg(long, env = "WEBLOOM_DOWNLOAD_DENY", value_delimiter = ',')]
    download_deny: Option<Vec<String>>,
    /// Let the broker start programs on this machine [default: false]
    #[arg(long, env = "WEBLOOM_APPLICATIONS", num_args = 0..=1, default_missing_value = "true")]
    applications: Option<bool>,
    /// Hosts, besides the broker, that packages may come from: example.com, *.example.com, host:port, * [default: none]
    #[arg(long, env = "WEBLOOM_PACKAGE_HOSTS", value_delimiter = ',')]
    package_hosts: Option<Vec<String>>,
    /// Users that programs may run as, if the agent is root; the first is for programs that name none [default: none]
    #[arg(long, env = "WEBLOOM_APPLICATION_USERS", value_delimiter = ',')]
    application_users: Option<Vec<String>>,
    /// Maximum bytes of a package [default: 536870912]
    #[arg(long, env = "WEBLOOM_MAX_PACKAGE_BYTES")]
    max_package_bytes: Option<u64>,
    /// Maximum bytes of all cached packages [default: 4294967296]
    #[arg(long, env = "WEBLOOM_CACHE_BYTES")]
    cache_bytes: Option<u64>,
    /// Concurrent programs [default: as many as blocks]
    #[arg(long, env = "WEBLOOM_MAX_PROGRAMS")]
    max_programs: Option<u32>,
    /// Maximum bytes of memory (address space) of each process of a program [default: the system's limit]
    #[arg(long, env = "WEBLOOM_PROGRAM_MEMORY")]
    program_memory: Option<u64>,
    /// Maximum seconds of processor time of each process of a program [default: the system's limit]
    #[arg(long, env = "WEBLOOM_PROGRAM_CPU_SECONDS")]
    program_cpu_seconds: Option<u64>,
    /// Maximum open files of each process of a program [default: the system's limit]
    #[arg(long, env = "WEBLOOM_PROGRAM_OPEN_FILES")]
    program_open_files: Option<u64>,
    /// What to do with programs when the agent stops: end or keep [default: end]
    #[arg(long, env = "WEBLOOM_PROGRAMS_AT_STOP")]
    programs_at_stop: Option<AtStop>,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

impl Args {
    /// Whether log lines are sent as well.
    pub fn sends_logs(&self) -> bool {
        self.telemetry.is_on()
    }
}

impl std::fmt::Debug for Args {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the token.
        f.debug_struct("Args").field("broker", &self.broker).finish_non_exhaustive()
    }
}

/// Arguments of `webloom launch`, which only an agent calls.
#[derive(Debug, ClapArgs)]
pub struct LaunchArgs {
    /// The folder of the program
    folder: PathBuf,
    /// Which step
    step: Option<std::ffi::OsString>,
}

/// Runs one step of a program's launcher, for an agent.
pub fn launch(args: &LaunchArgs) -> ExitCode {
    agent::launch(&args.folder, args.step.as_deref()).into()
}

/// Runs an agent until it is stopped.
///
/// # Errors
/// A setting is wrong, or the broker rejects the agent.
pub fn run(args: Args) -> Result<(), String> {
    private::hide_process();
    open_files::raise();
    let settings = AgentLayer {
        max_process_count: args.max_process_count,
        max_sites: args.max_sites,
        max_connections: args.max_connections,
        memory_mb: args.memory_mb,
        broker: args.broker,
        token: args.token,
        heartbeat: args.heartbeat,
        retry_download: args.retry_download,
        group: args.group,
        node_type: args.node_type,
        name: args.name,
        node_id: args.node_id,
        data_dir: args.data_dir,
        change_ip_command: args.change_ip_command,
        ip: args.ip,
        contact: args.contact,
        name_servers: args.name_servers,
        download_allow: args.download_allow,
        download_deny: args.download_deny,
        programs: ProgramLayer {
            applications: args.applications,
            package_hosts: args.package_hosts,
            application_users: args.application_users,
            max_package_bytes: args.max_package_bytes,
            cache_bytes: args.cache_bytes,
            max_programs: args.max_programs,
            program_limits: Some(ProgramLimits {
                memory: args.program_memory,
                cpu_seconds: args.program_cpu_seconds,
                open_files: args.program_open_files,
            }),
            programs_at_stop: args.programs_at_stop,
        },
    };
    let config = settings.validate().map_err(|wrong| wrong.join("\n         "))?;
    let telemetry = args.telemetry.start("webloom-agent")?;
    let spans = telemetry.clone();
    let sink: Option<agent::Sink> = telemetry.is_on().then(|| std::rc::Rc::new(move |span| spans.spans(|| [span])) as agent::Sink);
    let ended = actix_rt::System::new().block_on(agent::run(config, sink, stop_signal())).map_err(|e| e.to_string());
    telemetry.stop();
    ended
}
