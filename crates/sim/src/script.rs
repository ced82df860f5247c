//! Draws a schedule from a seed: what users do, and when. What goes wrong meanwhile is drawn next door.

use crate::deeds::{
    Child, Deed, DeletePropagation, Kind, Pods, Schedule, SliceTampering, Thing, Timed, TokenTampering,
    UserAction, Wish,
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
    let mut chance = fastrand::Rng::with_seed(seed);
    let (nodes, managers) = (chance.usize(1..4), chance.usize(1..3));
    let theme = THEMES[chance.usize(..THEMES.len())];
    let mut draw = Draw { chance, made: Vec::new(), accounts: Vec::new(), nodes, managers, theme };
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
    let mut schedule = Schedule { seed, managers, nodes, roles, deeds: Vec::new() };
    for _ in 0..deeds {
        at += draw.chance.u64(..pace * 2);
        let deeds =
            if troubled && draw.chance.u8(..100) < 45 { draw.misfortunes() } else { vec![(0, draw.wish())] };
        schedule.deeds.extend(deeds.into_iter().map(|(later, deed)| Timed { at: at + later, deed }));
    }
    // The last word is about what users care about most.
    for _ in 0..if theme == Theme::Everything { 0 } else { 2 } {
        at += draw.chance.u64(..5_000);
        schedule.deeds.push(Timed { at, deed: Deed::User(draw.about(theme)) });
    }
    // What takes some time overlaps with what comes after it.
    schedule.deeds.sort_by_key(|timed| timed.at);
    schedule
}

/// What users of a storm care about most.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Theme {
    Everything,
    Services,
    Accounts,
    Nodes,
    Owners,
}

const THEMES: [Theme; 8] = [
    Theme::Everything,
    Theme::Everything,
    Theme::Everything,
    Theme::Services,
    Theme::Accounts,
    Theme::Nodes,
    Theme::Owners,
    Theme::Owners,
];

pub(crate) struct Draw {
    pub(crate) chance: fastrand::Rng,
    made: Vec<Thing>,
    /// The accounts that tokens were asked of.
    accounts: Vec<(String, String)>,
    pub(crate) nodes: usize,
    pub(crate) managers: usize,
    theme: Theme,
}

impl Draw {
    pub(crate) fn of<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.chance.usize(..from.len())]
    }

    /// A namespace, mostly one that was made.
    fn namespace(&mut self) -> String {
        let made = self.made.iter().filter(|thing| thing.kind == Kind::Namespace);
        let there: Vec<_> = made.map(|thing| thing.name.clone()).chain([NAMESPACES[0].to_owned()]).collect();
        match self.chance.u8(..100) {
            ..25 => self.of(&NAMESPACES).to_owned(),
            _ => there[self.chance.usize(..there.len())].clone(),
        }
    }

    /// An account, mostly one that somebody has asked for a token of.
    fn account(&mut self) -> (String, String) {
        let known = self.chance.u8(..100) < 80 && !self.accounts.is_empty();
        if known {
            self.accounts[self.chance.usize(..self.accounts.len())].clone()
        } else {
            (self.namespace(), self.name())
        }
    }

    fn name(&mut self) -> String {
        self.of(&NAMES).to_owned()
    }

    /// Something that was made, if anything was.
    fn made(&mut self) -> Option<Thing> {
        (!self.made.is_empty()).then(|| self.made[self.chance.usize(..self.made.len())].clone())
    }

    /// Something that a user does.
    pub(crate) fn wish(&mut self) -> Deed {
        let themed = self.theme != Theme::Everything && self.chance.u8(..100) < 40;
        let theme = if themed {
            self.theme
        } else {
            match self.chance.u8(..100) {
                ..78 => Theme::Everything,
                78..84 => Theme::Services,
                84..89 => Theme::Accounts,
                89..94 => Theme::Nodes,
                _ => Theme::Owners,
            }
        };
        Deed::User(self.about(theme))
    }

    fn about(&mut self, theme: Theme) -> UserAction {
        match theme {
            Theme::Everything => self.plain(),
            Theme::Services => self.about_services(),
            Theme::Accounts => self.about_accounts(),
            Theme::Nodes => self.about_nodes(),
            Theme::Owners => self.about_owners(),
        }
    }

    /// What is done to workloads every day, and some harm.
    fn plain(&mut self) -> UserAction {
        let made = self.made();
        match (self.chance.u8(..100), made) {
            (..36, _) | (36..84, None) => self.creation(),
            (36..48, Some(thing)) => UserAction::Scale(thing, self.chance.u32(..5)),
            (48..60, Some(thing)) => UserAction::Roll(thing, self.chance.u32(..4)),
            (60..65, Some(thing)) => UserAction::Hold(thing, self.chance.bool()),
            (65..78, Some(thing)) => UserAction::Delete(thing, self.farewell()),
            (78..84, Some(thing)) => self.recreation(thing),
            (84..91, _) => UserAction::DeletePod(self.namespace(), self.chance.usize(..20)),
            (91..94, _) => UserAction::Orphan(self.namespace(), self.name()),
            (94..97, _) => UserAction::Circle(self.namespace(), self.name()),
            _ => UserAction::Held(self.namespace(), self.name()),
        }
    }

    fn about_services(&mut self) -> UserAction {
        let service = self.made.iter().rfind(|thing| thing.kind == Kind::Service).cloned();
        match (self.chance.u8(..100), service) {
            (..45, _) | (_, None) => {
                // Most are for pods that are there.
                let like = self.made().filter(|_| self.chance.u8(..100) < 75);
                let (namespace, name) = like
                    .filter(|like| like.kind != Kind::Namespace)
                    .map_or_else(|| (self.namespace(), self.name()), |like| (like.namespace, like.name));
                let thing = Thing { kind: Kind::Service, namespace, name };
                self.made.push(thing.clone());
                let wish = Wish { otherwise: self.chance.bool(), ..self.wish_for(Kind::Service) };
                UserAction::Create(thing, wish)
            }
            (45..65, Some(service)) => {
                let harm = self.of(&[
                    SliceTampering::Empty,
                    SliceTampering::Forge,
                    SliceTampering::Delete,
                    SliceTampering::Disclaim,
                ]);
                UserAction::SpoilSlice(service.namespace, self.chance.usize(..5), harm)
            }
            (65..80, Some(service)) => {
                let (name, port) = (self.name(), self.of(&[80, 81, 82]));
                UserAction::Reselect(service, name, port)
            }
            _ => UserAction::Move(self.chance.usize(..self.nodes), self.chance.u8(..3)),
        }
    }

    fn about_accounts(&mut self) -> UserAction {
        match self.chance.u8(..100) {
            ..25 => {
                let (namespace, name) = (self.namespace(), self.name());
                self.accounts.push((namespace.clone(), name.clone()));
                UserAction::AskToken(namespace, name, self.chance.u8(..100) < 20)
            }
            25..45 => {
                let harm = self.of(&[
                    TokenTampering::Empty,
                    TokenTampering::Forge,
                    TokenTampering::Delete,
                    TokenTampering::Recreate,
                ]);
                let (namespace, name) = self.account();
                UserAction::SpoilToken(namespace, name, harm)
            }
            45..60 => {
                let (namespace, name) = self.account();
                UserAction::DropAccount(namespace, name, self.chance.bool())
            }
            60..68 => UserAction::Role,
            68..84 => {
                let allows = Some(self.chance.u8(..4)).filter(|_| self.chance.u8(..100) < 75);
                UserAction::RolePart(self.name(), allows)
            }
            84..90 => UserAction::Forge(self.namespace()),
            _ => UserAction::Spoil(self.namespace()),
        }
    }

    fn about_nodes(&mut self) -> UserAction {
        let node = self.chance.usize(..self.nodes);
        match self.chance.u8(..100) {
            ..25 => UserAction::RemoveNode(node),
            25..45 => UserAction::Cordon(node, self.chance.bool()),
            45..70 => UserAction::Taint(node, self.chance.u8(..100) < 65),
            70..85 => UserAction::Move(node, self.chance.u8(..3)),
            _ => UserAction::Stray(self.namespace(), self.name()),
        }
    }

    fn about_owners(&mut self) -> UserAction {
        let made = self.made();
        match (self.chance.u8(..100), made) {
            (..25, Some(thing)) => self.recreation(thing),
            (25..32, Some(thing)) => UserAction::Delete(thing, DeletePropagation::Orphan),
            (..60, _) => {
                let child = self.of(&[Child::Pod, Child::Pod, Child::ReplicaSet, Child::ControllerRevision]);
                UserAction::Disown(child, self.namespace(), self.chance.usize(..20))
            }
            (60..75, _) => UserAction::Relabel(self.namespace(), self.chance.usize(..20)),
            (75..87, _) => UserAction::Stray(self.namespace(), self.name()),
            _ => UserAction::DeleteRevision(self.namespace(), self.chance.usize(..10)),
        }
    }

    fn recreation(&mut self, thing: Thing) -> UserAction {
        let (farewell, wish) = (self.farewell(), self.wish_for(thing.kind));
        UserAction::Recreate(thing, farewell, wish)
    }

    pub(crate) fn creation(&mut self) -> UserAction {
        let roll = self.chance.u8(..100);
        let thing = if roll < 12 {
            let name = self.of(&NAMESPACES[1..]).to_owned();
            Thing { kind: Kind::Namespace, namespace: String::new(), name }
        } else {
            let kind = if roll < 20 { Kind::Service } else { self.of(&WORKLOADS) };
            Thing { kind, namespace: self.namespace(), name: self.name() }
        };
        self.wished(thing)
    }

    fn wished(&mut self, thing: Thing) -> UserAction {
        let wish = self.wish_for(thing.kind);
        self.made.push(thing.clone());
        UserAction::Create(thing, wish)
    }

    fn wish_for(&mut self, kind: Kind) -> Wish {
        let pods = self.of(&[Pods::Well, Pods::Well, Pods::Well, Pods::Slow, Pods::Shaky, Pods::Failing]);
        let pods = if kind != Kind::Job && pods == Pods::Failing { Pods::Well } else { pods };
        let (replicas, flavour) = (self.chance.u32(..4), self.chance.u32(..4));
        Wish { replicas, flavour, pods, otherwise: self.chance.u8(..100) < 30 }
    }

    fn farewell(&mut self) -> DeletePropagation {
        self.of(&[
            DeletePropagation::Background,
            DeletePropagation::Background,
            DeletePropagation::Foreground,
            DeletePropagation::Orphan,
        ])
    }
}
