//! stub

use super::house::House;
use super::supervision::Notice;
use actix::{Actor, Context};

/// stub
#[derive(Debug)]
pub struct Janitor {
    notice: Notice,
    house: House,
}

impl Janitor {
    /// stub
    #[must_use]
    pub fn new(notice: Notice, house: House) -> Self {
        Self { notice, house }
    }
}

impl Actor for Janitor {
    type Context = Context<Self>;
}
