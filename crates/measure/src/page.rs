//! A report as one HTML page that needs nothing beside it.

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:70em;margin:2em auto;padding:0 1em;\
color:#222}table{border-collapse:collapse;width:100%}th,td{padding:.35em .6em;text-align:right;\
border-bottom:1px solid #ddd}th:first-child,td:first-child{text-align:left}\
td.gain{font-weight:bold}.failed{color:#b00}.published{color:#666;background:#f7f7f7}\
small{color:#666}pre{background:#f5f5f5;padding:.6em;overflow-x:auto}";

/// `body` is HTML, `title` is text.
pub fn draw(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style>{body}</html>\n"
    )
}

pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
