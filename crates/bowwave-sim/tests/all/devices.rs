//! Any device behind the queue of its own specification.

use bowwave_baselines::ALGORITHMS;
use bowwave_core::{Instant, Random, Urgency};
use bowwave_sim::device::{DeviceSpec, Direction, Request, RequestId};
use bowwave_sim::queue::Queue;

#[test]
fn any_text_is_a_device_or_a_one_line_error_and_devices_complete_all_requests() {
    let mut random = Random::from_state(1);
    let values =
        ["0", "1", "2", "0.5", "3.5", "7", "64", "1000", "1e6", "-1", "nan", "inf", "\"x\"", "1e300"];
    let names = DeviceSpec::names();
    let (mut opened, mut refused) = (0, 0);
    for round in 0..1500 {
        let name = names[round % names.len()];
        let text = DeviceSpec::file(name).unwrap();
        // Some lines with another value, a few with a character less.
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for _ in 0..1 + random.below(3) {
            let place = random.below(lines.len() as u64) as usize;
            if let Some((key, _)) = lines[place].clone().split_once('=') {
                lines[place] = format!("{key}= {}", values[random.below(values.len() as u64) as usize]);
            }
            if random.below(10) == 0 {
                lines[place].pop();
            }
        }
        match DeviceSpec::parse("my.toml", &lines.join("\n"), &ALGORITHMS) {
            Ok(spec) => {
                opened += 1;
                serve(&spec, &mut random);
            }
            Err(error) => {
                refused += 1;
                let error = error.to_string();
                assert!(!error.contains('\n') && !error.is_empty(), "{name}: {error:?}");
            }
        }
    }
    assert!(opened > 100 && refused > 100, "{opened} opened, {refused} refused");
}

/// Every request ends, once, not before it began.
fn serve(spec: &DeviceSpec, random: &mut Random) {
    let mut queue = Queue::new(spec.build(1), spec.queue().clone()).unwrap();
    let mut completed = Vec::new();
    for id in 0..20 {
        let direction = if random.below(3) == 0 { Direction::Write } else { Direction::Read };
        let (start, bytes) = (random.bits() >> 20, 1 + random.below(200_000));
        let (id, urgency) = (RequestId(id), Urgency::Demand);
        queue.submit(Instant(0), Request { id, direction, start, bytes, urgency, owner: 0, object: 0 });
    }
    let mut events = 0;
    while let Some(next) = queue.next_event() {
        queue.advance(next, &mut completed);
        events += 1;
        assert!(events < 100_000, "{spec:?}");
    }
    assert_eq!(completed.len(), 20, "{spec:?}");
    assert!(completed.iter().all(|done| done.started <= done.ended), "{spec:?}");
}
