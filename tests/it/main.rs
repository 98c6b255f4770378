//! One binary for all tests that run the real program: a file per journey.

mod support;

mod bad_input;
mod bounds;
mod kill;
mod management;
mod panics;
mod plain_http;
mod programs;
mod real_input;
mod restart;
mod sockets;
mod tokens;
