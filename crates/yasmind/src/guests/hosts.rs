//! `/etc/yasmin/hosts`: which address belongs to which guest of this host.
//!
//! ```text
//! # address      guest
//! 10.0.2.21      1003        its vsock number (CID)
//! fd00::21       domain 3    the same by its Xen domain number
//! 10.0.2.99      never       always plain TCP, whatever is announced
//! ```
//!
//! Between two marks the broker writes what it learned; lines outside are the administrator's,
//! are never touched, and win.

use super::XEN_CID_BASE;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

const BEGIN: &str =
    "# yasmind begin: learned from the other guests; do not edit, lines outside win";
const BEGIN_MARK: &str = "# yasmind begin";
const END: &str = "# yasmind end";

/// What a line says of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    Guest(u32),
    Never,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    #[error("'{0}' is not an IPv4 or IPv6 address")]
    Address(String),
    #[error("no guest; give a CID such as 1003, 'domain 3' or 'never'")]
    Missing,
    #[error("'{0}' is not a CID from 3 on, 'domain NUMBER' or 'never'")]
    Guest(String),
    #[error("'{0}' is one field too many")]
    TooMany(String),
    #[error("the address is in line {first} already, and that one holds")]
    Twice { first: usize },
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, field {field}: {wrong}; the line is left out")]
pub struct Error {
    pub line: usize,
    pub field: usize,
    pub wrong: Wrong,
}

/// The administrator's lines, and what is wrong with some of them.
pub fn parse(text: &str) -> (BTreeMap<IpAddr, Rule>, Vec<Error>) {
    let mut rules: BTreeMap<IpAddr, (usize, Rule)> = BTreeMap::new();
    let mut errors = Vec::new();
    for (line, content) in by_hand(text) {
        let result = parse_line(content).and_then(|rule| {
            let Some((address, rule)) = rule else { return Ok(()) };
            if let Some((first, _)) = rules.get(&address) {
                return Err((1, Wrong::Twice { first: *first }));
            }
            rules.insert(address, (line, rule));
            Ok(())
        });
        if let Err((field, wrong)) = result {
            errors.push(Error { line, field, wrong });
        }
    }
    (rules.into_iter().map(|(address, (_, rule))| (address, rule)).collect(), errors)
}

/// Lines outside the broker's part, with their numbers.
fn by_hand(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_ours = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let mark = line.trim();
        if mark.starts_with(BEGIN_MARK) {
            is_ours = true;
        }
        let kept = (!is_ours).then_some((index + 1, line));
        if mark == END {
            is_ours = false;
        }
        kept
    })
}

fn parse_line(line: &str) -> Result<Option<(IpAddr, Rule)>, (usize, Wrong)> {
    let content = line.split('#').next().unwrap_or_default();
    let mut fields = content.split_whitespace();
    let Some(address) = fields.next() else { return Ok(None) };
    let address: IpAddr = address.parse().map_err(|_| (1, Wrong::Address(address.to_owned())))?;
    let guest = fields.next().ok_or((2, Wrong::Missing))?;
    let wrong = |text: &str| Wrong::Guest(text.to_owned());
    let mut last = 2;
    let rule = match guest {
        "never" => Rule::Never,
        "domain" => {
            last = 3;
            let number = fields.next().ok_or((3, Wrong::Missing))?;
            let domain: u16 = number.parse().map_err(|_| (3, wrong(number)))?;
            Rule::Guest(XEN_CID_BASE + u32::from(domain))
        }
        cid => match cid.parse() {
            // 0 to 2 are the hypervisor, this machine and the host.
            Ok(cid) if (3..u32::MAX).contains(&cid) => Rule::Guest(cid),
            _ => return Err((2, wrong(cid))),
        },
    };
    match fields.next() {
        Some(more) => Err((last + 1, Wrong::TooMany(more.to_owned()))),
        None => Ok(Some((address.to_canonical(), rule))),
    }
}

/// The file with its learned part replaced; everything else as it is.
pub fn with_learned(text: &str, learned: &BTreeMap<IpAddr, u32>) -> String {
    let mut out = String::new();
    for (_, line) in by_hand(text) {
        out.push_str(line);
        out.push('\n');
    }
    if !learned.is_empty() {
        out.push_str(BEGIN);
        out.push('\n');
        for (address, cid) in learned {
            let _ = writeln!(out, "{address} {cid}");
        }
        out.push_str(END);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn lines_and_comments() {
        let text = "# all\n\n10.0.2.21 1003 # b\n fd00::21\tdomain 3\n10.0.2.99 never\n::ffff:10.0.2.5 77\n";
        let (rules, errors) = parse(text);
        assert_eq!(errors, []);
        let wanted = [
            (ip("10.0.2.5"), Rule::Guest(77)),
            (ip("10.0.2.21"), Rule::Guest(1003)),
            (ip("10.0.2.99"), Rule::Never),
            (ip("fd00::21"), Rule::Guest(1003)),
        ];
        assert_eq!(rules.into_iter().collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn a_wrong_line_costs_only_itself() {
        let text = "10.0.2 1003\n10.0.2.1\n10.0.2.1 two\n10.0.2.1 2\n10.0.2.1 domain x\n\
                    10.0.2.1 1003 extra\n10.0.2.1 1003\n10.0.2.1 1004\n10.0.2.2 domain\n";
        let (rules, errors) = parse(text);
        assert_eq!(rules.into_iter().collect::<Vec<_>>(), [(ip("10.0.2.1"), Rule::Guest(1003))]);
        let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let wanted = [
            "line 1, field 1: '10.0.2' is not an IPv4 or IPv6 address; the line is left out",
            "line 2, field 2: no guest; give a CID such as 1003, 'domain 3' or 'never'; the line is left out",
            "line 3, field 2: 'two' is not a CID from 3 on, 'domain NUMBER' or 'never'; the line is left out",
            "line 4, field 2: '2' is not a CID from 3 on, 'domain NUMBER' or 'never'; the line is left out",
            "line 5, field 3: 'x' is not a CID from 3 on, 'domain NUMBER' or 'never'; the line is left out",
            "line 6, field 3: 'extra' is one field too many; the line is left out",
            "line 8, field 1: the address is in line 7 already, and that one holds; the line is left out",
            "line 9, field 3: no guest; give a CID such as 1003, 'domain 3' or 'never'; the line is left out",
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn what_is_learned_is_written_and_not_taken_for_a_rule() {
        let by_hand = "# mine\n10.0.2.99 never\n";
        let learned = BTreeMap::from([(ip("10.0.2.21"), 1003)]);
        let text = with_learned(by_hand, &learned);
        assert!(text.starts_with(by_hand) && text.contains("\n10.0.2.21 1003\n"), "{text}");
        assert_eq!(with_learned(&text, &learned), text);
        assert_eq!(parse(&text).0.len(), 1);
        let after = format!("{text}10.0.2.7 5\n");
        assert_eq!(parse(&after).0.len(), 2);
        assert_eq!(with_learned(&text, &BTreeMap::new()), by_hand);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_survived(text in "[ -~\\n#]{0,200}") {
            let (rules, _) = parse(&text);
            let written = with_learned(&text, &BTreeMap::from([(ip("10.9.9.9"), 9)]));
            proptest::prop_assert_eq!(parse(&written).0, rules);
        }
    }
}
