//! The next time of a schedule with five fields.
//!
//! The search advances month, day, hour and minute until each matches, and starts over when one of them wraps. Hours
//! and minutes are added in absolute time: a local time that a daylight-saving change skips does not match, and one
//! that it repeats matches twice. Parity: `SpecSchedule.Next` of robfig/cron, step by step, because intermediate
//! results near a change of the offset depend on the order of the steps.

use jiff::tz::TimeZone;

use super::calendar::{Civil, civil, instant};

/// A set of values of one field, one bit each, and the bit [`STAR`].
pub(super) type Bits = u64;

/// Set if the field contains `*` or `?` with a step of at most one.
pub(super) const STAR: Bits = 1 << 63;

/// More steps than any search of six years takes. In a zone that skips a whole day the search would not end.
const STEPS_MAX: u32 = 1_000_000;

/// The end of the year 9990: a search for six years stays within the range of the time zone database.
const LAST_SECOND: i64 = 253_118_131_200;

/// A schedule with five fields, in a time zone. Seconds are always 0.
#[derive(Clone, Debug)]
pub struct FieldSchedule {
    pub(super) minute: Bits,
    pub(super) hour: Bits,
    pub(super) day_of_month: Bits,
    pub(super) month: Bits,
    pub(super) day_of_week: Bits,
    pub(super) zone: TimeZone,
}

/// The fields, in the order in which they are matched.
#[derive(Clone, Copy)]
enum Field {
    Month,
    Day,
    Hour,
    Minute,
    Second,
}

/// What a step of the search found.
enum Step {
    /// The field matches.
    Matches,
    /// The field was advanced past the end of its range: all fields are matched again.
    Wrapped,
    /// No time until the end of the search.
    NeverMatches,
}

/// The state of a search.
struct Search<'s> {
    schedule: &'s FieldSchedule,
    unix_seconds: i64,
    civil: Civil,
    /// Whether a field was advanced, and so all smaller ones are at their minimum.
    advanced: bool,
    steps: u32,
}

impl FieldSchedule {
    /// The first time after this second; `None` if there is none until the end of the fifth calendar year after it.
    pub(super) fn next(&self, unix_seconds: i64) -> Option<i64> {
        // A list of only commas is valid and matches nothing; nor is there a time after the last year of the calendar.
        if [self.minute, self.hour, self.month].contains(&0) || unix_seconds >= LAST_SECOND {
            return None;
        }
        let mut search = Search::from(self, unix_seconds.saturating_add(1));
        let year_max = search.civil.year + 5;
        'wrapped: while search.civil.year <= year_max {
            for field in [Field::Month, Field::Day, Field::Hour, Field::Minute, Field::Second] {
                match search.advance(field) {
                    Step::Matches => {}
                    Step::Wrapped => continue 'wrapped,
                    Step::NeverMatches => return None,
                }
            }
            return Some(search.unix_seconds);
        }
        None
    }

    /// If one of the day fields has a star, both must match; otherwise one suffices.
    fn matches_day(&self, civil: Civil) -> bool {
        let of_month = contains(self.day_of_month, civil.day);
        let of_week = contains(self.day_of_week, civil.weekday);
        if (self.day_of_month | self.day_of_week) & STAR == 0 {
            of_month || of_week
        } else {
            of_month && of_week
        }
    }
}

fn contains(bits: Bits, value: i64) -> bool {
    bits & (1 << value) != 0
}

impl<'s> Search<'s> {
    fn from(schedule: &'s FieldSchedule, unix_seconds: i64) -> Self {
        let civil = civil(&schedule.zone, unix_seconds);
        Self { schedule, unix_seconds, civil, advanced: false, steps: 0 }
    }

    fn set(&mut self, unix_seconds: i64) {
        self.unix_seconds = unix_seconds;
        self.civil = civil(&self.schedule.zone, unix_seconds);
        self.steps += 1;
    }

    fn add(&mut self, seconds: i64) {
        self.set(self.unix_seconds.saturating_add(seconds));
    }

    fn set_local(&mut self, month: i64, day: i64, seconds_of_day: i64) {
        self.set(instant(&self.schedule.zone, self.civil.year, month, day, seconds_of_day));
    }

    /// Whether this is the first advance, before which smaller fields are set to their minimum.
    fn is_first_advance(&mut self) -> bool {
        !std::mem::replace(&mut self.advanced, true)
    }

    fn seconds_of_day(&self) -> i64 {
        self.civil.hour * 3600 + self.civil.minute * 60 + self.civil.second
    }

    /// Advances a field until it matches or wraps.
    fn advance(&mut self, field: Field) -> Step {
        match field {
            Field::Month => self.month(),
            Field::Day => self.day(),
            Field::Hour => self.hour(),
            Field::Minute => self.minute(),
            Field::Second => self.second(),
        }
    }

    fn month(&mut self) -> Step {
        while !contains(self.schedule.month, self.civil.month) {
            if self.is_first_advance() {
                self.set_local(self.civil.month, 1, 0);
            }
            self.set_local(self.civil.month + 1, self.civil.day, self.seconds_of_day());
            if self.steps > STEPS_MAX {
                return Step::NeverMatches;
            }
            if self.civil.month == 1 {
                return Step::Wrapped;
            }
        }
        Step::Matches
    }

    fn day(&mut self) -> Step {
        while !self.schedule.matches_day(self.civil) {
            if self.is_first_advance() {
                self.set_local(self.civil.month, self.civil.day, 0);
            }
            self.set_local(self.civil.month, self.civil.day + 1, self.seconds_of_day());
            // The day does not start at midnight, or the day before was longer or shorter.
            match self.civil.hour {
                0 => {}
                late @ 13.. => self.add((24 - late) * 3600),
                early => self.add(-early * 3600),
            }
            if self.steps > STEPS_MAX {
                return Step::NeverMatches;
            }
            if self.civil.day == 1 {
                return Step::Wrapped;
            }
        }
        Step::Matches
    }

    fn hour(&mut self) -> Step {
        while !contains(self.schedule.hour, self.civil.hour) {
            if self.is_first_advance() {
                self.set_local(self.civil.month, self.civil.day, self.civil.hour * 3600);
            }
            self.add(3600);
            if self.steps > STEPS_MAX {
                return Step::NeverMatches;
            }
            if self.civil.hour == 0 {
                return Step::Wrapped;
            }
        }
        Step::Matches
    }

    fn minute(&mut self) -> Step {
        while !contains(self.schedule.minute, self.civil.minute) {
            if self.is_first_advance() {
                // Go truncates in absolute time.
                self.set(self.unix_seconds - self.unix_seconds.rem_euclid(60));
            }
            self.add(60);
            if self.steps > STEPS_MAX {
                return Step::NeverMatches;
            }
            if self.civil.minute == 0 {
                return Step::Wrapped;
            }
        }
        Step::Matches
    }

    fn second(&mut self) -> Step {
        while self.civil.second != 0 {
            self.advanced = true;
            self.add(1);
            if self.civil.second == 0 {
                return Step::Wrapped;
            }
        }
        Step::Matches
    }
}
