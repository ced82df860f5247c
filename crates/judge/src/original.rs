//! Go programs that answer for the original: they read one question per line and write one answer per line, as JSON.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A running program that is asked one question after the other.
pub struct Original {
    child: Child,
    /// `None` after the last question.
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Original {
    /// Starts a program.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(command: &mut Command) -> Result<Self> {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.with_context(|| format!("starting {:?}", command.get_program()))?;
        let (input, output) =
            child.stdin.take().zip(child.stdout.take()).context("the program has no pipes")?;
        Ok(Self { child, input: Some(input), output: BufReader::new(output).lines() })
    }

    /// Asks one question and waits for its answer.
    ///
    /// # Errors
    /// If the program has ended, or its answer cannot be read.
    pub fn ask<A: DeserializeOwned>(&mut self, question: &impl Serialize) -> Result<A> {
        let input = self.input.as_mut().context("the last question was asked")?;
        writeln!(input, "{}", serde_json::to_string(question)?)?;
        let line = self.output.next().context("the Go program ended early")??;
        serde_json::from_str(&line).with_context(|| format!("reading {line:?}"))
    }

    /// Asks all questions at once, and ends the program.
    ///
    /// # Errors
    /// If the program fails, or gives more or fewer answers than wanted.
    pub fn ask_all<A: DeserializeOwned>(
        mut self,
        questions: impl IntoIterator<Item = impl Serialize>,
        wanted: usize,
    ) -> Result<Vec<A>> {
        let lines: Vec<String> = questions
            .into_iter()
            .map(|question| serde_json::to_string(&question))
            .collect::<Result<_, _>>()?;
        let mut input = self.input.take().context("the last question was asked")?;
        // On another thread, because the program answers while it reads.
        let writer = std::thread::spawn(move || lines.iter().try_for_each(|line| writeln!(input, "{line}")));
        let mut answers = Vec::new();
        for line in &mut self.output {
            answers.push(serde_json::from_str(&line?)?);
        }
        writer.join().ok().context("writing failed")??;
        self.end()?;
        ensure!(answers.len() == wanted, "the Go program ended early");
        Ok(answers)
    }

    /// Lets the program end after the last question.
    ///
    /// # Errors
    /// If it fails.
    pub fn end(mut self) -> Result<()> {
        drop(self.input.take());
        ensure!(self.child.wait()?.success(), "the Go program failed");
        Ok(())
    }
}

/// The program must not outlive this one.
impl Drop for Original {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
