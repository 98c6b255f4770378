//! The spans of tasks, with a tracer as a program sets it up.

use super::broker::{Broker, block_on, order};
use crate::domain::trace::SpanId;
use crate::protocol::task::TaskOrder;
use crate::sdk::{TaskContext, TaskFailure, TaskResult};
use opentelemetry::trace::{
    self, Span as _, SpanBuilder, SpanContext, Status, TraceContextExt as _, TraceFlags, TraceState, Tracer as _, TracerProvider,
};
use opentelemetry::{Context, InstrumentationScope, KeyValue, global};
use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

/// A span that ended: its name, its trace, its id, its parent, how it ended.
type Ended = (String, String, String, String, Status);

/// A tracer that remembers.
#[derive(Debug, Clone, Default)]
struct Memory(Arc<Mutex<Vec<Ended>>>);

#[derive(Debug)]
struct Remembered {
    memory: Memory,
    name: String,
    parent: String,
    context: SpanContext,
    status: Status,
}

impl TracerProvider for Memory {
    type Tracer = Self;

    fn tracer_with_scope(&self, _: InstrumentationScope) -> Self {
        self.clone()
    }
}

impl trace::Tracer for Memory {
    type Span = Remembered;

    fn build_with_context(&self, builder: SpanBuilder, parent: &Context) -> Remembered {
        let above = parent.span().span_context().clone();
        let id = uuid::Uuid::new_v4().as_u64_pair().1.to_be_bytes();
        let context = SpanContext::new(above.trace_id(), trace::SpanId::from_bytes(id), TraceFlags::SAMPLED, false, TraceState::default());
        Remembered {
            memory: self.clone(),
            name: builder.name.to_string(),
            parent: above.span_id().to_string(),
            context,
            status: Status::Unset,
        }
    }
}

impl trace::Span for Remembered {
    fn add_event_with_timestamp<T: Into<Cow<'static, str>>>(&mut self, _: T, _: SystemTime, _: Vec<KeyValue>) {}

    fn span_context(&self) -> &SpanContext {
        &self.context
    }

    fn is_recording(&self) -> bool {
        true
    }

    fn set_attribute(&mut self, _: KeyValue) {}

    fn set_status(&mut self, status: Status) {
        self.status = status;
    }

    fn update_name<T: Into<Cow<'static, str>>>(&mut self, name: T) {
        self.name = name.into().into_owned();
    }

    fn add_link(&mut self, _: SpanContext, _: Vec<KeyValue>) {}

    fn end_with_timestamp(&mut self, _: SystemTime) {
        let (trace, id) = (self.context.trace_id().to_string(), self.context.span_id().to_string());
        self.memory.0.lock().expect("not poisoned").push((self.name.clone(), trace, id, self.parent.clone(), self.status.clone()));
    }
}

async fn fails(_: TaskContext) -> TaskResult {
    global::tracer("mine").start("step").end();
    Err(TaskFailure::new("no"))
}

#[test]
fn a_span_of_the_programs_own_tracer_belongs_to_the_attempt() {
    let memory = Memory::default();
    global::set_tracer_provider(memory.clone());
    block_on(async {
        let broker = Broker::start();
        let worker = broker.employ(|worker| worker.task("traced", fails)).await;
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let task = TaskOrder { trace_id: Some(trace.to_owned()), span_id: Some(SpanId(10)), ..order("traced") };
        broker.order(&task);
        broker.until("it ends", |state| state.last_of(&task).is_some()).await;
        // Other tests of this process have spans in this tracer, too.
        let ended = memory.0.lock().expect("not poisoned").clone();
        let of =
            |name: &str| ended.iter().find(|span| span.0 == name && span.1 == trace).unwrap_or_else(|| panic!("no {name} in {ended:?}"));
        let (outer, inner) = (of("traced"), of("step"));
        assert_eq!((outer.3.as_str(), &outer.4), ("000000000000000a", &Status::error("no")));
        assert_eq!(inner.3, outer.2);
        assert!(worker.stop().await.is_ok());
    });
}
