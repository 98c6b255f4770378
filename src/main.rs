//! The program; see [`webloom::cli`].

fn main() -> std::process::ExitCode {
    webloom::cli::main()
}
