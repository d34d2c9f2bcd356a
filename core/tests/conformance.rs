//! The public suite over the default executor.

use std::time::Duration;

use procession_core::{Chains, ChainsOptions};

procession_conformance::executor_suite!(|setup| {
    let options = ChainsOptions::new()
        .budget(setup.budget)
        .bodies_max(setup.bodies_per_group_max.min(1 << 30) as u32)
        .rereadable(true)
        .batch(setup.turn_records_max, Duration::ZERO);
    Chains::new(options.seed((setup.seed, !setup.seed)))
});
