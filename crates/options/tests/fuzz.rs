//! No command line and no file makes the parser panic, and it accepts the values that it formats.

mod common;

use common::context;
use keleustes_options::flag::FlagDefault;
use keleustes_options::{CommandLineContext, ParseOutcome, flags, parse};
use proptest::prelude::*;

/// Values that are valid or nearly valid for some flag.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-z]{0,6}",
        "-?[0-9]{1,12}(ms|s|m|h|us|ns)?",
        "[0-9.,:+-_eExXinfNa]{0,10}",
        "(true|false|T|0|1|maybe)",
        "[A-Za-z]{1,8}=(true|false|[a-z]{0,3})(,[A-Za-z:]{1,8}=true)?",
        "\"?[a-z,\"=:]{0,12}",
        "[0-9]{1,4}(Ki|k|Mi|E|e3|m|n)?",
        "(\\*|-?(job|deployment|podgc|foo))(,(\\*|-?job))?",
        any::<String>(),
    ]
}

fn argument() -> impl Strategy<Value = Vec<String>> {
    let names: Vec<&'static str> = flags::all().map(|flag| flag.name).collect();
    prop_oneof![
        8 => (prop::sample::select(names), value(), any::<bool>()).prop_map(|(name, value, apart)| {
            if apart { vec![format!("--{name}"), value] } else { vec![format!("--{name}={value}")] }
        }),
        1 => value().prop_map(|value| vec![format!("-v{value}")]),
        1 => any::<String>().prop_map(|text| vec![text]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_command_line_makes_the_parser_panic(args in prop::collection::vec(argument(), 0..5)) {
        match parse(args.into_iter().flatten(), &context()) {
            ParseOutcome::Refuse { message, exit_code, .. } => {
                prop_assert_eq!(exit_code, 1);
                prop_assert!(!message.is_empty() && !message.contains(['\n', '\r']), "{:?}", message);
            }
            ParseOutcome::Run(options) => {
                let _ = options.configz();
                let _ = options.flagz_text(": ");
            }
            ParseOutcome::Print(text) => prop_assert!(text.ends_with('\n')),
        }
    }

    #[test]
    fn formatted_values_are_accepted(flag in prop::sample::select(flags::all().collect::<Vec<_>>()), value in value()) {
        // Lists are formatted in brackets, which the flag does not parse; gates with a colon prefix.
        let readable = !matches!(flag.default, FlagDefault::List(_) | FlagDefault::Numbers | FlagDefault::Map | FlagDefault::CertKeys | FlagDefault::Gates | FlagDefault::Version);
        if !readable || flag.name == "help" {
            return Ok(());
        }
        let ParseOutcome::Run(options) = parse([format!("--{}={value}", flag.name)], &context()) else { return Ok(()) };
        let shown = options.flagz()[flag.name].clone();
        let ParseOutcome::Run(again) = parse([format!("--{}={shown}", flag.name)], &context()) else {
            return Err(TestCaseError::fail(format!("--{}={shown} was refused", flag.name)));
        };
        prop_assert_eq!(&again.flagz()[flag.name], &shown);
    }

    #[test]
    fn no_file_makes_the_parser_panic(
        text in prop_oneof![
            any::<String>(),
            "(apiVersion: controllermanager.config.k8s.io/v1(alpha1|beta1)?\nkind: LeaderMigrationConfiguration\n)[a-zA-Z: \\[\\]{}\",&*|>\n-]{0,60}",
            "[\\[\\]{}:,\"'&*!|>%@`a-c \n-]{0,40}",
        ],
        manifest in any::<bool>(),
    ) {
        let read = |_: &str| Ok(text.clone());
        let context = CommandLineContext { read_file: &read, ..context() };
        let args: &[&str] = if manifest { &["--allow-metric-labels-manifest=f"] } else { &["--enable-leader-migration", "--leader-migration-config=f"] };
        if let ParseOutcome::Refuse { message, exit_code, .. } = parse(args, &context) {
            prop_assert_eq!(exit_code, 1);
            prop_assert!(!message.is_empty() && !message.contains('\n'), "{:?}", message);
        }
    }
}
