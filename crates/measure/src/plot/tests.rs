use super::*;

fn axis(name: &str, scale: Scale) -> Axis<'_> {
    Axis { name, scale, show: &short }
}

#[test]
fn lines_have_names_colours_and_marks() {
    let mut dashed = Line::new("by ring", RINGS, [(1.0, 2.0), (16.0, 40.0)]);
    dashed.dash = Some((4, 4));
    let all = [dashed, Line::new("tcp", TCP, [(1.0, 20.0), (16.0, 90.0)])];
    let chart = Chart {
        title: "rate by size",
        x: axis("size", Scale::Doublings),
        y: axis("rate", Scale::Decades),
        legend: Legend::UpperLeft,
    };
    let svg = sheet(1, 1, (400, 300), |_, area| lines(area, &chart, &all)).unwrap();
    for text in ["rate by size", "by ring", "tcp", "size", "4.0", "50.0"] {
        assert!(svg.contains(text), "{text}");
    }
    for colour in ["#E53935", "#1E88E5"] {
        assert!(svg.contains(colour), "{colour}");
    }
}

#[test]
fn nothing_but_zeros_is_said() {
    let chart = Chart {
        title: "loss",
        x: axis("s", Scale::Linear),
        y: axis("%", Scale::Decades),
        legend: Legend::UpperLeft,
    };
    let all = [Line::new("a", colour(0), [(1.0, 0.0)])];
    let svg = sheet(1, 1, (400, 300), |_, area| lines(area, &chart, &all)).unwrap();
    assert!(svg.contains("loss: nothing but zeros"));
}

#[test]
fn every_row_has_its_name_and_dots() {
    let row = |name, samples| Row { name, samples, colour: TCP };
    let rows = [row("rings", &[2.0, 3.0][..]), row("plain", &[20.0]), row("other", &[7.0])];
    let svg = dots((600, 150), &rows, short).unwrap().unwrap();
    assert_eq!(svg.matches("<circle").count(), 4);
    for row in &rows {
        assert!(svg.contains(row.name), "{}", row.name);
    }
    assert_eq!(dots((600, 150), &[row("none", &[0.0])], short).unwrap(), None);
}
