//! The addresses of other systems, for clients that were written for them.

pub mod easy_job;
pub mod scheduler_net;
pub mod scrapyd;
