//! Decisions of `stream` by itself, as the benchmark of that name has them.

use std::hint::black_box;

use bowwave_core::{Config, FileMemory, Plans, Policy, Trigger, View};

use crate::patterns::Decide;
use crate::{Calls, case, patterns};

const CALLS: u64 = 2000;

pub(crate) fn cases() {
    for streams in [1, 32, 1000] {
        decisions(&format!("mark of {streams} upward"), Trigger::Mark, &|decide| {
            patterns::upward(streams, CALLS, decide);
        });
    }
    decisions("mark of 1 downward", Trigger::Mark, &|decide| patterns::backward(CALLS, decide));
    for readers in [1, 8] {
        decisions(&format!("read with a stride, {readers} readers"), Trigger::Miss, &|decide| {
            patterns::strided(readers, CALLS, decide);
        });
    }
    decisions("miss in no order", Trigger::Miss, &|decide| patterns::random(1, CALLS, decide));
    decisions("miss in small clusters", Trigger::Miss, &|decide| patterns::random(3, CALLS, decide));
}

/// A case in which what leads to a decision of a kind is left out.
fn decisions(name: &str, trigger: Trigger, run: &dyn Fn(&mut Decide<'_>)) {
    case(&format!("stream by itself: {name}"), |calls: &mut Calls| {
        let mut policy = Policy::Stream.build(&Config::default(), &mut FileMemory::default());
        let mut plans = Plans::default();
        run(&mut |access| {
            let view = View::of_nothing(patterns::WINDOW);
            let mut decide = || {
                plans.clear();
                policy.on_access(black_box(access), view, &mut plans);
            };
            if access.trigger == trigger {
                calls.count(decide)
            } else {
                decide()
            }
            plans.iter().next().and_then(|plan| plan.mark)
        });
    });
}
