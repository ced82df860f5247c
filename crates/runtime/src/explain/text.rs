//! Prints an explanation in the style of `kubectl describe`.

use std::fmt::Write as _;

use super::explanation::{ControllerExplanation, Explanation, ObjectLine};

/// The width of the first column.
const LABEL_WIDTH: usize = 14;

impl Explanation {
    /// The explanation for people. What is responsible is in its first five lines.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        let object = &self.object;
        line(&mut out, "Name:", &object.short());
        let namespace = if object.namespace.is_empty() { "<none>" } else { &object.namespace };
        line(&mut out, "Namespace:", namespace);
        line(&mut out, "State:", self.state);
        for (at, cause) in self.causes.iter().enumerate() {
            let times = if cause.count > 1 { format!(" ({} objects)", cause.count) } else { String::new() };
            let text = format!("{}: {}{times}", cause.object.short(), one_line(&cause.text));
            line(&mut out, if at == 0 { "Cause:" } else { "Also:" }, &text);
        }
        if let Some(first) = self.causes.first().filter(|cause| cause.path.len() > 1) {
            line(&mut out, "Path:", &first.path.join(" -> "));
        }
        line(&mut out, "Manager:", &self.manager_line());
        self.controllers_text(&mut out);
        objects(&mut out, "Owners:", &self.owners, 0);
        objects(&mut out, "Dependents:", &self.dependents, self.dependents_not_shown);
        self.decisions_text(&mut out);
        out
    }

    fn manager_line(&self) -> String {
        let leader = self.manager.leader.as_deref();
        match (self.manager.leads, leader) {
            (true, Some(leader)) => format!("leader (Lease held by {leader})"),
            (true, None) => "leader".to_owned(),
            (false, leader) => format!(
                "standby (leader: {}): what it would do is computed here; what the leader did and waits for, it knows",
                leader.unwrap_or("unknown")
            ),
        }
    }

    fn controllers_text(&self, out: &mut String) {
        if self.controllers.is_empty() {
            return line(out, "Controllers:", "none of this manager handles such objects");
        }
        out.push_str("Controllers:\n");
        let (satisfied, others): (Vec<_>, Vec<_>) =
            self.controllers.iter().partition(|controller| controller.is_satisfied());
        for controller in others {
            controller_text(out, controller);
        }
        if !satisfied.is_empty() {
            let mut names: Vec<_> = satisfied.iter().map(|controller| controller.controller).collect();
            names.dedup();
            let _ = writeln!(out, "  as wanted for {}", names.join(", "));
        }
    }

    fn decisions_text(&self, out: &mut String) {
        if self.decisions.is_empty() {
            return line(out, "Decisions:", "none in the journal of this process");
        }
        out.push_str("Decisions:\n");
        for entry in &self.decisions {
            let time = jiff::Timestamp::from_millisecond(entry.unix_milliseconds).unwrap_or_default();
            let time = time.strftime("%Y-%m-%dT%H:%M:%SZ");
            let _ = writeln!(out, "  {time}  {}  {}", entry.controller, one_line(&entry.summary()));
        }
    }
}

fn line(out: &mut String, label: &str, text: &str) {
    let _ = writeln!(out, "{label:LABEL_WIDTH$}{text}");
}

fn controller_text(out: &mut String, controller: &ControllerExplanation) {
    let _ = writeln!(out, "  {} ({}):", controller.controller, controller.item);
    for write in &controller.writes {
        let _ = writeln!(out, "    Wants:    {}", one_line(&write.line()));
    }
    if controller.writes_not_shown > 0 {
        let _ = writeln!(out, "    Wants:    {} more writes", controller.writes_not_shown);
    }
    for event in &controller.events {
        let kind = if event.warning { "Warning" } else { "Normal" };
        let _ = writeln!(out, "    Reports:  {kind} {}: {}", event.reason, one_line(&event.message));
    }
    if let Some(error) = &controller.error {
        let _ = writeln!(out, "    Fails:    {}", one_line(error));
    }
    if let Some(reason) = &controller.not_computed {
        let _ = writeln!(out, "    Unknown:  {reason}");
    }
    if controller.writes.is_empty() && controller.error.is_none() && controller.not_computed.is_none() {
        let _ = writeln!(out, "    Wants:    nothing to be written now");
    }
    for waiting in &controller.waiting {
        let _ = writeln!(out, "    Waits:    {}", one_line(waiting));
    }
}

fn objects(out: &mut String, label: &str, lines: &[ObjectLine], not_shown: usize) {
    if lines.is_empty() {
        return line(out, label, "<none>");
    }
    let _ = writeln!(out, "{label}");
    for ObjectLine { object, depth, findings } in lines {
        let indent = "  ".repeat(*depth);
        let text: Vec<_> = findings.iter().map(|finding| one_line(&finding.text)).collect();
        let text = if text.is_empty() { "ok".to_owned() } else { text.join("; ") };
        let _ = writeln!(out, "{indent}{}  {text}", object.short());
    }
    if not_shown > 0 {
        let _ = writeln!(out, "  and {not_shown} more");
    }
}

/// Messages are written by others: control characters and line breaks must not change what a terminal shows.
fn one_line(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
