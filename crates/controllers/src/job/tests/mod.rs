//! What is decided about Jobs, and what becomes of them turn by turn.

mod cluster;
mod crashes;
mod ending;
mod managing;
mod stage;
mod waking;
