//! One binary for all tests that run the real program: a file per journey.

mod support;

mod bad_input;
mod bounds;
mod kill;
mod management;
mod openapi;
mod panics;
mod plain_http;
mod programs;
mod real_input;
mod restart;
mod schedule;
mod sockets;
mod tokens;
