//! The language of schedules. The judge compares it with robfig/cron over generated schedules, zones and instants; a
//! sample of its answers is in `vectors.txt`.

use super::*;
use crate::cronjob::schedule::{Schedule, parse, quote, rfc1123z, rfc3339};

fn parsed(text: &str) -> Result<Schedule, String> {
    parse(text, &TimeZones::embedded())
}

fn failure(text: &str) -> String {
    parsed(text).expect_err(text)
}

/// The next times after a time, in UTC.
fn next_times(text: &str, after: &str, count: usize) -> Vec<String> {
    let schedule = parsed(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut times = Vec::new();
    let mut time = unix(after);
    while times.len() < count {
        let Some(next) = schedule.next(time) else { break };
        times.push(Time::from_unix_seconds(next).to_string());
        time = next;
    }
    times
}

fn next(text: &str, after: &str) -> String {
    next_times(text, after, 1).pop().unwrap_or_else(|| "never".to_owned())
}

/// Proves CRON-55, CRON-61.
#[test]
fn five_fields_select_minutes_and_the_next_time_is_strictly_later() {
    assert_eq!(next("5 4 * * *", "2027-01-15T08:00:00Z"), "2027-01-16T04:05:00Z");
    assert_eq!(next("0 8 * * *", "2027-01-15T08:00:00Z"), "2027-01-16T08:00:00Z");
    assert_eq!(next("0 8 * * *", "2027-01-15T07:59:59Z"), "2027-01-15T08:00:00Z");
    assert_eq!(next("0\t0  1 JAN *", "2027-01-15T08:00:00Z"), "2028-01-01T00:00:00Z");
    assert_eq!(next("0 0 * * MoN", "2027-01-15T08:00:00Z"), "2027-01-18T00:00:00Z");
    assert_eq!(next("0 0 29 2 *", "2027-01-15T08:00:00Z"), "2028-02-29T00:00:00Z");
    assert_eq!(next("59 23 31 2 *", "2027-01-15T08:00:00Z"), "never");
    assert_eq!(next("0 0 29 2 *", "2097-01-15T08:00:00Z"), "never", "2100 is no leap year");
}

/// Proves CRON-56, CRON-104, CRON-105.
#[test]
fn malformed_fields_have_upstreams_texts() {
    for (text, wanted) in [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("  ", "expected exactly 5 fields, found 0: []"),
        ("* * * * * *", "expected exactly 5 fields, found 6: [* * * * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("* * * * sat-sun", "beginning of range (6) beyond end of range (0): sat-sun"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("x/2/3 * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
        ("-5 * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
        ("*/-5 * * * *", "negative number (-5) not allowed: -5"),
        (
            "99999999999999999999 * * * *",
            "failed to parse int from 99999999999999999999: strconv.Atoi: parsing \"99999999999999999999\": value out of range",
        ),
        ("@reboot", "unrecognized descriptor: @reboot"),
        ("@every", "unrecognized descriptor: @every"),
        ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
        ("@every 5", "failed to parse duration @every 5: time: missing unit in duration \"5\""),
        ("@every 5d", "failed to parse duration @every 5d: time: unknown unit \"d\" in duration \"5d\""),
        ("TZ=Mars/Olympus * * * * *", "provided bad location Mars/Olympus: unknown time zone Mars/Olympus"),
        ("TZ=UTC", "invalid schedule format: runtime error: slice bounds out of range [:-1]"),
    ] {
        assert_eq!(failure(text), wanted, "{text:?}");
    }
}

/// Proves CRON-103.
#[test]
fn oddities_of_the_grammar_are_accepted() {
    let after = "2027-01-15T08:00:00Z";
    let same = |one: &str, other: &str| assert_eq!(next_times(one, after, 40), next_times(other, after, 40));
    same("1,,2 * * * *", "1,2 * * * *");
    same("*-5 * * * *", "* * * * *");
    same("?-x/20 * * * *", "*/20 * * * *");
    same("+05,007 * * * *", "5,7 * * * *");
    same("5/100 * * * *", "5 * * * *");
    same("50/4 ? ? ? ?", "50,54,58 * * * *");
    assert_eq!(next(", * * * *", after), "never");
    assert_eq!(next("* * , , 1", after), "never", "no month");
    assert_eq!(next("0 0 , * 1", after), "2027-01-18T00:00:00Z", "an empty day field is no star");
}

/// Proves CRON-57.
#[test]
fn star_in_a_day_field_decides_whether_both_must_match() {
    let after = "2027-01-15T08:00:00Z";
    assert_eq!(next("0 0 13 * 5", after), "2027-01-22T00:00:00Z", "the 13th or a Friday");
    assert_eq!(next("0 0 13 * *", after), "2027-02-13T00:00:00Z");
    assert_eq!(next("0 0 13,* * 5", after), "2027-01-22T00:00:00Z", "a star in a list");
    assert_eq!(next("0 0 13 * */1", after), "2027-02-13T00:00:00Z", "step 1 keeps the star");
    assert_eq!(next("0 0 13 * */2", after), "2027-01-16T00:00:00Z", "step 2 does not: Saturday");
    assert_eq!(next("59 23 31 2 1", after), "2027-02-01T23:59:00Z", "Mondays in February");
}

/// Proves CRON-58, CRON-59.
#[test]
fn descriptors_and_periods() {
    let after = "2027-01-15T08:00:30Z";
    for (text, wanted) in [
        ("@yearly", "2028-01-01T00:00:00Z"),
        ("@annually", "2028-01-01T00:00:00Z"),
        ("@monthly", "2027-02-01T00:00:00Z"),
        ("@weekly", "2027-01-17T00:00:00Z"),
        ("@daily", "2027-01-16T00:00:00Z"),
        ("@midnight", "2027-01-16T00:00:00Z"),
        ("@hourly", "2027-01-15T09:00:00Z"),
        ("TZ=UTC   @hourly  ", "2027-01-15T09:00:00Z"),
        ("@every 90m", "2027-01-15T09:30:30Z"),
        ("TZ=Asia/Tokyo @every 1.5h", "2027-01-15T09:30:30Z"),
        ("@every 2s999ms", "2027-01-15T08:00:32Z"),
        ("@every 0", "2027-01-15T08:00:31Z"),
        ("@every -5m", "2027-01-15T08:00:31Z"),
    ] {
        assert_eq!(next(text, after), wanted, "{text}");
    }
    for refused in ["@Daily", " @daily", "@daily ", "@every  1h", "@reboot"] {
        assert!(parsed(refused).is_err(), "{refused:?}");
    }
}

/// Proves CRON-60.
#[test]
fn zone_prefix_selects_the_zone() {
    let after = "2027-01-15T08:00:00Z";
    assert_eq!(next("TZ=Asia/Tokyo 0 0 * * *", after), "2027-01-15T15:00:00Z");
    assert_eq!(next("CRON_TZ=Asia/Tokyo 0 0 * * *", after), "2027-01-15T15:00:00Z");
    assert_eq!(next("TZ= 0 0 * * *", after), "2027-01-16T00:00:00Z", "empty is UTC");
    for refused in ["TZ=", "TZ=Asia/Tokyo", "CRON_TZ=0", " TZ=UTC 0 0 * * *"] {
        assert!(parsed(refused).is_err(), "{refused:?}");
    }
}

/// Proves CRON-62.
#[test]
fn skipped_local_times_do_not_run_and_repeated_ones_run_twice() {
    let zone = "TZ=America/New_York";
    let spring = next_times(&format!("{zone} 30 2 * * *"), "2027-03-13T00:00:00Z", 2);
    assert_eq!(spring, ["2027-03-13T07:30:00Z", "2027-03-15T06:30:00Z"], "no 02:30 on March 14");
    let autumn = next_times(&format!("{zone} 30 1 * * *"), "2027-11-06T12:00:00Z", 3);
    assert_eq!(autumn, ["2027-11-07T05:30:00Z", "2027-11-07T06:30:00Z", "2027-11-08T06:30:00Z"]);
}

/// Proves CRON-64, CRON-106, CRON-107.
#[test]
fn days_without_midnight_follow_gos_arithmetic() {
    // Santiago goes from 23:59 on September 4, 2027 to 01:00 on September 5. Recorded from robfig/cron.
    let zone = "TZ=America/Santiago";
    for (fields, after, wanted) in include_str!("days_without_midnight.txt").lines().map(|line| {
        let mut parts = line.split(" | ");
        (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap())
    }) {
        assert_eq!(next(&format!("{zone} {fields}"), after), wanted, "{fields} after {after}");
    }
}

/// Proves CRON-61, CRON-62, CRON-64, CRON-104, CRON-105, CRON-106, CRON-107.
#[test]
fn recorded_answers_of_robfig_cron_hold() {
    let mut checked = 0;
    for line in include_str!("vectors.txt").lines() {
        let mut parts = line.split('\t');
        let (text, after, wanted) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let text: String = serde_json::from_str(text).unwrap();
        let found = match parsed(&text) {
            Ok(schedule) => {
                schedule.next(after.parse().unwrap()).map_or("never".into(), |next| next.to_string())
            }
            Err(error) => serde_json::to_string(&error).unwrap(),
        };
        assert_eq!(found, wanted, "{text:?} after {after}");
        checked += 1;
    }
    assert!(checked > 200, "{checked}");
}

/// Proves CRON-63.
#[test]
fn zone_names_are_checked_as_go_does() {
    let zones = TimeZones::embedded();
    for name in ["../etc/passwd", "/etc/passwd", "\\\\host", "a/..b"] {
        assert_eq!(zones.load(name).unwrap_err(), "time: invalid location name");
    }
    assert_eq!(zones.load("europe/berlin").unwrap_err(), "unknown time zone europe/berlin");
    for name in ["", "UTC", "Local", "Europe/Berlin", "Etc/UTC"] {
        assert!(zones.load(name).is_ok(), "{name}");
    }
}

/// Proves CRON-34, CRON-43.
#[test]
fn times_are_formatted_as_go_does() {
    let zone = |name: &str| TimeZones::embedded().load(name).unwrap();
    assert_eq!(rfc3339(&zone("UTC"), NOW), "2027-01-15T08:00:00Z");
    assert_eq!(rfc3339(&zone("America/St_Johns"), NOW), "2027-01-15T04:30:00-03:30");
    assert_eq!(rfc3339(&zone("Asia/Kathmandu"), NOW), "2027-01-15T13:45:00+05:45");
    assert_eq!(rfc1123z(NOW), "Fri, 15 Jan 2027 08:00:00 +0000");
    assert_eq!(quote("a\"b\\c\n\u{7f}ü\u{85}"), r#""a\"b\\c\n\x7fü\u0085""#);
}
