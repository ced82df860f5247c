//! Draws what goes wrong while users do what they do.

use crate::deeds::{Deed, Party, Trouble, Verdict, Which};
use crate::script::Draw;

impl Draw {
    /// Something that goes wrong, and what has to come with it, each so many milliseconds later.
    pub(crate) fn misfortunes(&mut self) -> Vec<(u64, Deed)> {
        match self.chance.u8(..100) {
            ..4 => self.back_in_time(),
            4..8 => self.small_pages(),
            8..14 if self.managers > 1 => self.taken_over_blindly(),
            14..20 => self.frozen_in_the_middle(),
            _ => vec![(0, self.misfortune())],
        }
    }

    /// A manager that starts again, or whose watches end, meets a server whose caches are behind and stay so.
    fn back_in_time(&mut self) -> Vec<(u64, Deed)> {
        let (manager, lasts) = (self.chance.usize(..self.managers), self.chance.u64(2_000..60_000));
        let disturbed = |what, verdict| disturbed(manager, what, verdict, lasts);
        let mut deeds = vec![disturbed(Which::Reads, Verdict::Old), disturbed(Which::Watches, Verdict::Old)];
        if self.chance.bool() {
            deeds.push(disturbed(Which::Streams, Verdict::Refused(400)));
        }
        deeds.push(disturbed(Which::Watches, Verdict::Stalls));
        deeds.push(match self.chance.u8(..3) {
            0 => Deed::Crash(manager),
            1 => Deed::CutWatches,
            _ => Deed::ExpireWatches,
        });
        deeds.into_iter().map(|deed| (0, deed)).collect()
    }

    /// Lists in pages, whose state may be forgotten between two of them.
    fn small_pages(&mut self) -> Vec<(u64, Deed)> {
        let (manager, lasts) = (self.chance.usize(..self.managers), self.chance.u64(2_000..60_000));
        let disturbed = |what, verdict| disturbed(manager, what, verdict, lasts);
        let mut deeds = vec![disturbed(Which::Streams, Verdict::Refused(400))];
        if self.chance.bool() {
            deeds.push(disturbed(Which::Pages, self.of(&[Verdict::Refused(410), Verdict::Truncated])));
        }
        deeds.push(disturbed(Which::Reads, Verdict::SmallPages));
        deeds.push(Deed::ExpireWatches);
        deeds.into_iter().map(|deed| (0, deed)).collect()
    }

    /// Whoever leads does something that the other does not hear of, and dies.
    fn taken_over_blindly(&mut self) -> Vec<(u64, Deed)> {
        let (deaf, lasts) = (self.chance.usize(..self.managers), self.chance.u64(30_000..90_000));
        let does = self.creation();
        let soon = self.chance.u64(..1_000);
        vec![
            (0, disturbed(deaf, Which::Watches, Verdict::Stalls, lasts)),
            (soon, Deed::User(does)),
            (soon + self.chance.u64(200..6_000), Deed::Crash(1 - deaf)),
        ]
    }

    /// Everybody sleeps for longer than the lease, in the middle of what somebody has asked for.
    fn frozen_in_the_middle(&mut self) -> Vec<(u64, Deed)> {
        let does = self.creation();
        vec![(0, Deed::User(does)), (self.chance.u64(5..200), Deed::Freeze(self.chance.u64(10_000..40_000)))]
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
            90..95 => Verdict::Cuts,
            95..98 => Verdict::Expires,
            _ => Verdict::Old,
        };
        let what = match verdict {
            Verdict::Old => Which::All,
            Verdict::Truncated => self.of(&[Which::Reads, Which::Writes, Which::Pods]),
            Verdict::Refused(410) => self.of(&[Which::Reads, Which::Watches, Which::Streams, Which::Pods]),
            Verdict::Stalls | Verdict::Cuts | Verdict::Expires => {
                self.of(&[Which::Watches, Which::Pods, Which::ReplicaSets, Which::EndpointSlices])
            }
            // Others go without saying if somebody was faster, and then there is a change to be woken by.
            Verdict::Refused(409) => self.of(&[Which::Statuses, Which::Creates]),
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

/// All such requests of a manager meet this for so long.
fn disturbed(manager: usize, what: Which, verdict: Verdict, lasts: u64) -> Deed {
    Deed::Trouble(Trouble { party: Party::Manager(manager), what, verdict, percent: 100, lasts })
}
