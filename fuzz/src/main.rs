//! Hands libFuzzer's inputs to the target that `KELEUSTES_FUZZ_TARGET` names.
#![no_main]

use std::sync::LazyLock;

use keleustes_fuzz::{Target, find};
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("KELEUSTES_FUZZ_TARGET").expect("KELEUSTES_FUZZ_TARGET names a target");
    find(&name).expect("there is such a target")
});

fuzz_target!(|input: &[u8]| (TARGET.run)(input));
