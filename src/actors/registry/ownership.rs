//! At a broker that owns runs and does not lead: executes them, and gives them up. At the leader: takes runs back that others owned.

use super::{AbandonRuns, GiveRunsUp, Registry, RunGivenUp, RunWithdrawn, TakeRunsBack};
use crate::actors::context::BrokerContext;
use crate::actors::registry::RegistryHandle;
use crate::actors::run_shell::AtWork;
use crate::domain::ids::Identity;
use crate::protocol::ownership::ToLeader;
use actix::{ActorContext, Context, Handler};

impl Registry {
    /// Starts the registry of a broker that does not lead: its only children are the actors of the runs that it owns.
    #[must_use]
    pub fn start_of_owner(context: &BrokerContext) -> RegistryHandle {
        Self::start_with(context, |_, _| {})
    }

    fn all_runs(&self) -> Vec<(Identity, AtWork)> {
        let addresses = &self.context.addresses;
        let blocks = addresses.runs.all().into_iter().map(|(identity, run)| (identity, AtWork::Run(run)));
        blocks.chain(addresses.others.all()).collect()
    }

    /// At a broker that does not lead.
    pub(super) fn tell_leader(&self, message: ToLeader) {
        self.context.leader.iter().for_each(|leader| leader.send(message.clone()));
    }

    /// If all runs were to be given up, and none is at work any more: the leader may take back what is left.
    pub(super) fn leave_if_done(&self) {
        let addresses = &self.context.addresses;
        let is_idle = addresses.runs.count() + addresses.others.count() + addresses.building.count() == 0;
        if self.gives_up && is_idle {
            self.tell_leader(ToLeader::Leave);
        }
    }
}

impl Handler<GiveRunsUp> for Registry {
    type Result = ();
    fn handle(&mut self, GiveRunsUp { only_blocks }: GiveRunsUp, _: &mut Self::Context) {
        let _timed = self.timed("registry.give_runs_up");
        if only_blocks {
            return self.context.addresses.runs.all().into_iter().for_each(|(_, run)| AtWork::Run(run).give_up(false));
        }
        self.gives_up = true;
        self.all_runs().iter().for_each(|(_, at_work)| at_work.give_up(false));
        self.leave_if_done();
    }
}

impl Handler<RunGivenUp> for Registry {
    type Result = ();
    fn handle(&mut self, RunGivenUp(identity): RunGivenUp, _: &mut Self::Context) {
        let _timed = self.timed("registry.run_given_up");
        self.leave_run(identity);
        // Its turns at sites end: they are used at another broker soon.
        self.context.sites.run_gone(identity);
        self.tell_leader(ToLeader::GivenUp { run_id: identity });
        self.leave_if_done();
    }
}

impl Handler<RunWithdrawn> for Registry {
    type Result = ();
    fn handle(&mut self, RunWithdrawn(identity): RunWithdrawn, _: &mut Self::Context) {
        let _timed = self.timed("registry.run_withdrawn");
        self.leave_run(identity);
        self.leave_if_done();
    }
}

impl Handler<AbandonRuns> for Registry {
    type Result = ();
    fn handle(&mut self, AbandonRuns(reply): AbandonRuns, ctx: &mut Context<Self>) {
        let _timed = self.timed("registry.abandon_runs");
        self.all_runs().iter().for_each(|(_, at_work)| at_work.give_up(true));
        // Runs whose actors are being built are not started any more.
        ctx.stop();
        reply.send(Ok(()));
    }
}

impl Handler<TakeRunsBack> for Registry {
    type Result = ();
    fn handle(&mut self, TakeRunsBack { all_of, runs }: TakeRunsBack, ctx: &mut Context<Self>) {
        let _timed = self.timed("registry.take_runs_back");
        // A caller may have asked for one meanwhile.
        let addresses = &self.context.addresses;
        let is_new = |run: &Identity| addresses.run(*run).is_none() && addresses.building.get(*run).is_none();
        let new: Vec<Identity> = runs.iter().copied().filter(is_new).collect();
        self.take_over(&new, ctx);
        // Only now: the nodes of a run that is neither here nor elsewhere drop its blocks.
        let elsewhere = &self.context.addresses.elsewhere;
        runs.into_iter().for_each(|run| elsewhere.remove(run));
        for (run, (owner, _)) in elsewhere.all() {
            if all_of == Some(owner) {
                elsewhere.remove(run);
            }
        }
    }
}
