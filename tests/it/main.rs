//! One binary for all tests that run the real program: a file per journey.

mod support;

mod agent_programs;
mod alerts;
mod applications;
mod bad_input;
mod bounds;
mod callbacks;
mod command_line;
mod job_data;
mod kill;
mod kill_schedule;
mod kill_tasks;
mod live_logs;
mod management;
mod metrics;
mod odd_workers;
mod openapi;
mod panics;
mod plain_http;
mod programs;
mod real_input;
mod redrive;
mod restart;
mod retention;
mod schedule;
mod scheduler_net;
mod sockets;
mod standby;
mod tasks;
mod tokens;
mod turns;
mod workers;
mod workflow;
