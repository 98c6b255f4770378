//! Ctrl-C and SIGTERM.

use actix_rt::signal::ctrl_c;
use actix_rt::signal::unix::{SignalKind, signal};

/// Waits until somebody wants the program to end.
pub async fn ended() {
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        }
        Err(error) => {
            log::error!("cannot listen for SIGTERM: {error}");
            // Ctrl-C is left.
            let _ = ctrl_c().await;
        }
    }
}
