//! What is wrong with hwloc's XML, and where: hwloc itself only says that something is. And
//! what only some builds of hwloc read: without libxml2, a plugin of its own, it takes what it
//! has written itself, so no comments.

use roxmltree::{Attribute, Document, Node, ParsingOptions};

/// The file without its comments.
///
/// # Errors
/// The first thing that is wrong, with its line and the field.
pub fn plain(xml: &str) -> Result<String, String> {
    // The files name hwloc's own document type. It is not fetched.
    let options = ParsingOptions { allow_dtd: true, nodes_limit: 1 << 22, ..Default::default() };
    let document = Document::parse_with_options(xml, options).map_err(|error| {
        let at = error.pos();
        format!("line {}, column {}: {error}", at.row, at.col)
    })?;
    match complaint(&document) {
        Some(complaint) => Err(complaint),
        None => Ok(without_comments(xml, &document)),
    }
}

fn without_comments(xml: &str, document: &Document<'_>) -> String {
    let mut plain = String::with_capacity(xml.len());
    let mut from = 0;
    for comment in document.root().descendants().filter(Node::is_comment) {
        let range = comment.range();
        plain += &xml[from..range.start];
        from = range.end;
    }
    // The line before the root element would be left empty, which that reader does not take.
    (plain + &xml[from..]).replace("\n\n", "\n")
}

fn complaint(document: &Document<'_>) -> Option<String> {
    let root = document.root_element();
    if root.tag_name().name() != "topology" {
        let name = root.tag_name().name();
        return Some(format!("{}: the outermost element is <{name}>, not <topology>", line(root)));
    }
    let objects = root.descendants().filter(|node| node.is_element());
    objects.filter(|node| node.has_tag_name("object")).find_map(object).or_else(|| {
        let missing = !root.descendants().any(|node| node.attribute("type") == Some("PU"));
        missing.then(|| format!("{}: no object of type PU: a machine has CPUs", line(root)))
    })
}

fn line(node: Node<'_, '_>) -> String {
    format!("line {}", node.document().text_pos_at(node.range().start).row)
}

fn object(node: Node<'_, '_>) -> Option<String> {
    if node.attribute("type").is_none() {
        return Some(format!("{}: an object without the field type", line(node)));
    }
    node.attributes().find_map(|field| {
        let wanted = wanted(field)?;
        let row = node.document().text_pos_at(field.range().start).row;
        let (name, value) = (field.name(), field.value());
        Some(format!("line {row}: {name}=\"{value}\" is not {wanted}"))
    })
}

/// What the field should be, if it is not.
fn wanted(field: Attribute<'_, '_>) -> Option<&'static str> {
    const NUMBERS: [&str; 9] = [
        "os_index",
        "gp_index",
        "depth",
        "cache_size",
        "cache_linesize",
        "local_memory",
        "osdev_type",
        "kind",
        "bridge_depth",
    ];
    let value = field.value();
    if NUMBERS.contains(&field.name()) {
        return value.parse::<u64>().is_err().then_some("a number from 0 on");
    }
    if field.name().ends_with("cpuset") || field.name().ends_with("nodeset") {
        let part = |part: &str| {
            let digits = part.strip_prefix("0x").unwrap_or(part);
            digits.len() <= 8 && digits.chars().all(|digit| digit.is_ascii_hexdigit())
        };
        let fine = value.split(',').all(|one| one == "0xf...f" || part(one));
        return (!fine).then_some("a set such as 0x000000ff");
    }
    None
}
