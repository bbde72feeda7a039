//! The text of a reply without the model's reasoning.
//!
//! Where a server does not separate it, the reasoning is in the text: with vLLM and llama.cpp without a parser for the
//! model, or for MiniMax by the model's own rule. The conversation keeps it, since the model may want it back. People
//! are shown only what comes after it.

const BEGIN: &str = "<think>";
const END: &str = "</think>";

/// The text after the reasoning at its beginning, without space around it; empty if the reasoning does not end.
pub(crate) fn without_reasoning(text: &str) -> &str {
    let text = text.trim();
    if let Some(thoughts) = text.strip_prefix(BEGIN) {
        return thoughts
            .split_once(END)
            .map_or("", |(_, words)| words.trim_start());
    }
    // Some chat templates put the first mark into the prompt, so that a reply has only the second one.
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        end += line.len();
        if line.trim() == END && !text[..end].contains(BEGIN) {
            return text[end..].trim_start();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_are_not_spoken() {
        for (text, expected) in [
            (" I fixed it.\n", "I fixed it."),
            ("<think>\nIs it?\n</think>\n\nI fixed it.", "I fixed it."),
            ("<think></think>Fixed.", "Fixed."),
            ("Is it?\n</think>\n\nI fixed it.", "I fixed it."),
            ("<think>\nIs it?", ""),
            ("<think>Is it?</think>\n", ""),
            ("Is it?\n</think>", ""),
            ("", ""),
        ] {
            assert_eq!(without_reasoning(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_text_about_the_marks_is_spoken_in_whole() {
        for text in [
            "The parser now ends a thought at `</think>`, also after `<think>`.",
            "It reads:\n\n```\n<think>\nx\n</think>\n```",
        ] {
            assert_eq!(without_reasoning(text), text);
        }
    }
}
