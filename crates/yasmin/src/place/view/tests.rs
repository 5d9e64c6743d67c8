use super::*;

#[test]
fn seats_fit_their_field() {
    let colours = BTreeMap::new();
    let one = vec!["a-function-with-a-long-name[1234]"];
    let two = vec!["a", "b"];
    let cases = [
        (Some(&one), false, "  7 a-function-wi"),
        (Some(&two), false, "  7 a +1"),
        (None, true, "  7 (others)"),
        (None, false, "  7 -"),
    ];
    for (functions, is_taken, text) in cases {
        let span = seat(7, functions, is_taken, &colours);
        assert_eq!(span.content.trim_end(), text);
        assert_eq!(span.content.chars().count(), SEAT_COLUMNS as usize);
    }
}

#[test]
fn a_chain_reads_from_card_to_card() {
    let found = Found {
        functions: vec!["fw".into(), "nat".into()],
        entry: Some("eth0".into()),
        exit: Some("eth1".into()),
        rate: 2048.0,
        origins: Vec::new(),
    };
    let text: String = chain(0, &found).spans.iter().map(|span| span.content.as_ref()).collect();
    assert_eq!(text.trim(), "2.00 KiB/s  eth0 > fw > nat > eth1");
}
