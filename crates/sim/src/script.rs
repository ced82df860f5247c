//! Draws a schedule from a seed: what users do, and what goes wrong meanwhile.

use crate::deeds::{
    Deed, Farewell, Kind, Party, Pods, Schedule, Thing, Timed, Trouble, UserDeed, Verdict, Which, Wish,
};

/// The namespaces that users work in; the first is always there.
pub const NAMESPACES: [&str; 3] = ["default", "harbour", "reef"];
const NAMES: [&str; 3] = ["oar", "sail", "hull"];
const WORKLOADS: [Kind; 6] = [
    Kind::Deployment,
    Kind::StatefulSet,
    Kind::DaemonSet,
    Kind::Job,
    Kind::ReplicaSet,
    Kind::ReplicationController,
];
/// The first deeds come when the managers have had a moment to begin.
const FIRST_AT: u64 = 2_000;

/// The schedule that grows from a seed.
#[must_use]
pub fn drawn(seed: u64) -> Schedule {
    let mut draw = Draw { chance: fastrand::Rng::with_seed(seed), made: Vec::new(), nodes: 0, managers: 0 };
    draw.nodes = draw.chance.usize(1..4);
    draw.managers = draw.chance.usize(1..3);
    let deeds = draw.chance.usize(6..40);
    // Most storms are over in seconds, some take minutes.
    let pace = match draw.chance.u8(..16) {
        ..4 => 300,
        4..10 => 1_500,
        10..13 => 4_000,
        13..15 => 8_000,
        _ => 20_000,
    };
    let troubled = draw.chance.u8(..100) < 80;
    let mut at = FIRST_AT;
    let roles = draw.chance.u8(..100) < 20;
    let mut schedule =
        Schedule { seed, managers: draw.managers, nodes: draw.nodes, roles, deeds: Vec::new() };
    for _ in 0..deeds {
        at += draw.chance.u64(..pace * 2);
        let deeds =
            if troubled && draw.chance.u8(..100) < 45 { draw.misfortunes() } else { vec![draw.wish()] };
        schedule.deeds.extend(deeds.into_iter().map(|deed| Timed { at, deed }));
    }
    schedule
}

struct Draw {
    chance: fastrand::Rng,
    made: Vec<Thing>,
    nodes: usize,
    managers: usize,
}

impl Draw {
    fn of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.chance.usize(..from.len())]
    }

    fn namespace(&mut self) -> String {
        self.of(&NAMESPACES).to_owned()
    }

    fn name(&mut self) -> String {
        self.of(&NAMES).to_owned()
    }

    /// Something that a user does.
    fn wish(&mut self) -> Deed {
        let roll = self.chance.u8(..100);
        let made = (!self.made.is_empty()).then(|| self.made[self.chance.usize(..self.made.len())].clone());
        Deed::User(match (roll, made) {
            (..30, _) | (30..72, None) => self.creation(),
            (30..42, Some(thing)) => UserDeed::Scale(thing, self.chance.u32(..5)),
            (42..54, Some(thing)) => UserDeed::Roll(thing, self.chance.u32(..4)),
            (54..58, Some(thing)) => UserDeed::Hold(thing, self.chance.bool()),
            (58..72, Some(thing)) => UserDeed::Delete(thing, self.farewell()),
            (72..79, _) => UserDeed::DeletePod(self.namespace(), self.chance.usize(..20)),
            (79..84, _) => UserDeed::Relabel(self.namespace(), self.chance.usize(..20)),
            (84..88, _) => UserDeed::Stray(self.namespace(), self.name()),
            (88..90, _) => UserDeed::Orphan(self.namespace(), self.name()),
            (90..92, _) => UserDeed::Circle(self.namespace(), self.name()),
            (92..94, _) => UserDeed::Held(self.namespace(), self.name()),
            (94..96, _) => UserDeed::RemoveNode(self.chance.usize(..self.nodes)),
            (96..98, _) => UserDeed::Cordon(self.chance.usize(..self.nodes), self.chance.bool()),
            (98, _) => UserDeed::Forge(self.namespace()),
            _ => UserDeed::Spoil(self.namespace()),
        })
    }

    fn creation(&mut self) -> UserDeed {
        let roll = self.chance.u8(..100);
        let thing = if roll < 12 {
            let name = self.of(&NAMESPACES[1..]).to_owned();
            Thing { kind: Kind::Namespace, namespace: String::new(), name }
        } else {
            let kind = if roll < 22 { Kind::Service } else { self.of(&WORKLOADS) };
            Thing { kind, namespace: self.namespace(), name: self.name() }
        };
        let pods = self.of(&[Pods::Well, Pods::Well, Pods::Well, Pods::Slow, Pods::Shaky, Pods::Failing]);
        let pods = if thing.kind != Kind::Job && pods == Pods::Failing { Pods::Well } else { pods };
        let (replicas, flavour) = (self.chance.u32(..4), self.chance.u32(..4));
        let wish = Wish { replicas, flavour, pods, otherwise: self.chance.u8(..100) < 30 };
        self.made.push(thing.clone());
        UserDeed::Create(thing, wish)
    }

    fn farewell(&mut self) -> Farewell {
        self.of(&[Farewell::Background, Farewell::Background, Farewell::Foreground, Farewell::Orphan])
    }

    /// Something that goes wrong, and what has to come with it.
    fn misfortunes(&mut self) -> Vec<Deed> {
        if self.chance.u8(..100) >= 8 {
            return vec![self.misfortune()];
        }
        let (manager, lasts) = (self.chance.usize(..self.managers), self.chance.u64(2_000..60_000));
        let disturbed = |what, verdict| {
            Deed::Trouble(Trouble { party: Party::Manager(manager), what, verdict, percent: 100, lasts })
        };
        let no_streams = disturbed(Which::Streams, Verdict::Refused(400));
        if self.chance.bool() {
            // Back in time: a manager that starts again lists from a cache that is behind, and stays so.
            let behind = [disturbed(Which::Reads, Verdict::Old), disturbed(Which::Watches, Verdict::Stalls)];
            [no_streams].into_iter().chain(behind).chain([Deed::Crash(manager)]).collect()
        } else {
            // Lists in pages, whose state may be forgotten between two of them.
            let pages = disturbed(Which::Reads, Verdict::SmallPages);
            let gone = disturbed(Which::Pages, self.of(&[Verdict::Refused(410), Verdict::Truncated]));
            let gone = Some(gone).filter(|_| self.chance.bool());
            [no_streams].into_iter().chain(gone).chain([pages, Deed::ExpireWatches]).collect()
        }
    }

    /// Something that goes wrong.
    fn misfortune(&mut self) -> Deed {
        let manager = self.chance.usize(..self.managers);
        let node = self.chance.usize(..self.nodes);
        match self.chance.u8(..100) {
            ..44 => Deed::Trouble(self.trouble(manager)),
            44..46 => Deed::Jump(self.of(&[-300, -60, -2, 2, 60, 300])),
            46..48 => Deed::Pause(manager, self.chance.u64(1_000..40_000)),
            48..50 => Deed::Freeze(self.chance.u64(1_000..40_000)),
            50..52 => Deed::Certificates(manager, self.chance.u64(500..20_000)),
            52..66 => Deed::Crash(manager),
            66..70 => Deed::Stop(manager),
            70..74 => Deed::Compact,
            74..78 => Deed::ExpireWatches,
            78..82 => Deed::CutWatches,
            82..86 => Deed::Restart(self.chance.u64(200..15_000)),
            86..88 => Deed::Skew(manager, self.of(&[-300, -60, -2, 2, 60, 300])),
            88..94 => Deed::FailNode(node),
            _ => Deed::RecoverNode(node),
        }
    }

    fn trouble(&mut self, manager: usize) -> Trouble {
        let verdict = match self.chance.u8(..100) {
            // Less than what a leader's own caution allows for: later ones may land in another's term.
            ..16 => Verdict::Late(self.chance.u64(50..3_000)),
            16..26 => Verdict::LateAnswer(self.chance.u64(50..30_000)),
            26..41 => Verdict::Refused(self.of(&[401, 409, 409, 410, 429, 500, 503, 504])),
            41..43 => Verdict::Truncated,
            43..52 => Verdict::RefusedAfterwards(self.of(&[500, 504])),
            52..60 => Verdict::Lost,
            60..70 => Verdict::AnswerLost,
            70..74 => Verdict::Hangs,
            74..90 => Verdict::Stalls,
            90..96 => Verdict::Cuts,
            _ => Verdict::Expires,
        };
        let what = match verdict {
            Verdict::Truncated => self.of(&[Which::Reads, Which::Writes, Which::Pods]),
            Verdict::Refused(410) => self.of(&[Which::Reads, Which::Watches, Which::Streams, Which::Pods]),
            Verdict::Stalls | Verdict::Cuts | Verdict::Expires => {
                self.of(&[Which::Watches, Which::Pods, Which::ReplicaSets])
            }
            Verdict::Refused(409) => self.of(&[Which::Writes, Which::Statuses, Which::Creates]),
            _ => self.of(&[
                Which::Writes,
                Which::Creates,
                Which::Statuses,
                Which::Deletes,
                Which::Reads,
                Which::Watches,
                Which::Pods,
                Which::Leases,
                Which::Tokens,
                Which::All,
            ]),
        };
        let nodes = self.chance.u8(..100) < 8;
        let party = if nodes { Party::Nodes } else { Party::Manager(manager) };
        let percent = self.of(&[10, 30, 60, 100]);
        Trouble { party, what, verdict, percent, lasts: self.chance.u64(500..90_000) }
    }
}
