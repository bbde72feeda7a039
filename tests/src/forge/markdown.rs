//! Texts as GitHub and GitLab show them: their Markdown with tables, task lists and alerts, and of raw HTML only a few
//! tags without attributes. Comments are hidden.

use std::sync::LazyLock;

use comrak::nodes::NodeValue;
use comrak::options::{Extension, Options, Parse, Render};
use comrak::{Arena, format_html, parse_document};
use regex::Regex;

use super::rest::Api;

/// Both forges know more, but nothing else of theirs is in what AgentMine writes.
static KNOWN: LazyLock<Regex> = LazyLock::new(|| {
    let tags = "details|summary|sub|sup|kbd|br|b|i|p|code|pre";
    pattern(&format!("(?i)&lt;(/?(?:{tags}) ?/?)&gt;"))
});
static COMMENT: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?s)<!--.*?-->"));

#[expect(clippy::expect_used, reason = "the patterns are constants")]
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("it is valid")
}

/// HTML of a text in an issue, a pull request or a comment. GitHub keeps the lines of such texts, GitLab joins them.
pub(super) fn rendered(text: &str, on: Api) -> String {
    let options = Options {
        extension: Extension {
            strikethrough: true,
            table: true,
            autolink: true,
            tasklist: true,
            footnotes: true,
            alerts: true,
            ..Extension::default()
        },
        parse: Parse::default(),
        render: Render {
            hardbreaks: on == Api::GitHub,
            ..Render::default()
        },
    };
    let arena = Arena::new();
    let root = parse_document(&arena, text, &options);
    for node in root.descendants() {
        let mut data = node.data_mut();
        let shown = match &data.value {
            NodeValue::HtmlBlock(block) => sanitized(&block.literal),
            NodeValue::HtmlInline(html) => sanitized(html),
            _ => continue,
        };
        data.value = NodeValue::Raw(shown);
    }
    let mut html = String::new();
    match format_html(root, &options, &mut html) {
        Ok(()) => html,
        Err(_) => escape(text),
    }
}

fn sanitized(html: &str) -> String {
    let shown = escape(&COMMENT.replace_all(html, ""));
    KNOWN.replace_all(&shown, "<$1>").into_owned()
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_shows_is_shown_and_nothing_else_is_html() {
        let text = "<!-- hidden -->\n- [x] done\n- [ ] open\n\n| a | b |\n|---|---|\n| `1` | 2 |\n\n\
            <details><summary>More</summary>\n\n**bold** <sub>small</sub>\n\n</details>\n\n\
            <script>alert(1)</script>\n<img src=x onerror=alert(1)> [x](javascript:alert(1))";
        let html = rendered(text, Api::GitHub);
        for part in [
            "<li><input type=\"checkbox\" checked=\"\" disabled=\"\" /> done</li>",
            "<td><code>1</code></td>",
            "<details><summary>More</summary>",
            "<strong>bold</strong> <sub>small</sub>",
            "&lt;script&gt;",
            "&lt;img src=x",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        for part in ["hidden", "<script", "<img", "javascript:"] {
            assert!(!html.contains(part), "{part}: {html}");
        }
    }

    #[test]
    fn lines_are_kept_on_github_and_joined_on_gitlab() {
        assert_eq!(rendered("a\nb", Api::GitHub), "<p>a<br />\nb</p>\n");
        assert_eq!(rendered("a\nb", Api::GitLab), "<p>a\nb</p>\n");
    }
}
