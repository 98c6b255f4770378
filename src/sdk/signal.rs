//! Signals to stop the program, from the user or the system.

/// Waits for Ctrl-C or, on Unix, SIGTERM.
pub async fn stop_signal() {
    let interrupt = async {
        if actix_rt::signal::ctrl_c().await.is_err() {
            // Without a signal handler, wait forever.
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminate = async {
        use actix_rt::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending::<()>();
    tokio::select! {
        () = interrupt => {}
        () = terminate => {}
    }
}
