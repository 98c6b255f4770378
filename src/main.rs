//! webloom
fn main() {}
