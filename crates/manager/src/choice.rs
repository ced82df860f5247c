//! Which controllers run, by the rules of `--controllers`.

use std::collections::BTreeSet;

use anyhow::bail;
use keleustes_controllers::names::{self, Default, KNOWN, Known};
use keleustes_plan::Controller;

/// What `--controllers` asks for.
pub(crate) struct Choice {
    wanted: BTreeSet<&'static str>,
}

impl Choice {
    /// Reads the list; of `name`, `-name` and `*` the first two win over the third, whatever the order.
    ///
    /// # Errors
    /// Names every entry that is no controller.
    pub(crate) fn read(list: &[String]) -> anyhow::Result<Self> {
        let (mut wanted, mut unwanted, mut unknown) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        let all = list.iter().any(|entry| entry == "*");
        for entry in list.iter().filter(|entry| *entry != "*") {
            let (name, set) = match entry.strip_prefix('-') {
                Some(name) => (name, &mut unwanted),
                None => (entry.as_str(), &mut wanted),
            };
            match names::find(name) {
                Some(known) => drop(set.insert(known.name)),
                None => unknown.push(format!("{name:?}")),
            }
        }
        if !unknown.is_empty() {
            bail!("--controllers: {} is not in the list of known controllers", unknown.join(", "));
        }
        let on_by_default = |known: &&Known| all && known.default == Default::On;
        wanted.extend(KNOWN.iter().filter(on_by_default).map(|known| known.name));
        wanted.retain(|name| !unwanted.contains(name));
        Ok(Self { wanted })
    }

    /// Whether a controller is to run. The token controller is switched off only by leaving out its key.
    pub(crate) fn wants(&self, name: &str) -> bool {
        name == "serviceaccount-token-controller" || self.wanted.contains(name)
    }

    /// Wanted controllers that cannot run, because they are not written yet or lack what they need.
    pub(crate) fn missing(&self, there: &[Controller]) -> Vec<&'static str> {
        let missing = |name: &&&'static str| !there.iter().any(|controller| controller.name == **name);
        self.wanted.iter().filter(missing).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(list: &[&str]) -> anyhow::Result<Choice> {
        Choice::read(&list.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn names_win_over_the_star_in_any_order() {
        let choice = read(&["-serviceaccount", "*", "bootstrapsigner"]).unwrap();
        assert!(!choice.wants("serviceaccount-controller"));
        assert!(choice.wants("bootstrap-signer-controller") && choice.wants("job-controller"));
        assert!(!choice.wants("token-cleaner-controller"), "it must be named");
        let few = read(&["job-controller"]).unwrap();
        assert!(few.wants("job-controller") && !few.wants("deployment-controller"));
        assert!(few.wants("serviceaccount-token-controller"), "not switched off by the list");
    }

    #[test]
    fn every_unknown_name_is_named() {
        let error = read(&["*", "jobs", "-nonsense"]).err().unwrap().to_string();
        assert!(error.contains(r#""jobs", "nonsense""#), "{error}");
    }
}
