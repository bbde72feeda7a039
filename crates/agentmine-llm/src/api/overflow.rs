//! How servers, proxies and providers say that a conversation does not fit into the model's window.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// Substrings of their errors, in lower case: OpenAI, Azure, vLLM, SGLang, llama.cpp, LM Studio, Ollama,
/// TGI, Groq, Cerebras, Anthropic, Bedrock, Google, Mistral, Cohere, xAI, Moonshot, Zhipu, DashScope,
/// MiniMax, Copilot, Fireworks, SiliconFlow, and what LiteLLM's proxy takes for it.
const WORDINGS: [&str; 48] = [
    "context_length_exceeded",
    "contextwindowexceedederror",
    "context window error",
    "exceed_context_size",
    "model_max_prompt_tokens_exceeded",
    "maximum context length",
    "maximum context limit",
    "maximum model length",
    "maximum prompt length",
    "maximum allowed input length",
    "maximum input length is",
    "exceed context limit",
    "exceeds the available context size",
    "exceeds the context window",
    "exceeds the context length",
    "exceeds context length",
    "exceeds maximum context",
    "exceeds the maximum context",
    "exceed the context window",
    "context length exceeded",
    "context window exceeded",
    "context window exceeds limit",
    // llama.cpp and LM Studio, whose window ends in the middle of a reply.
    "context size has been exceeded",
    "must be less than max_seq_len",
    "context the overflows",
    "greater than the context length",
    "longer than the model's context length",
    "longer than the maximum model length",
    "prompt is too long",
    "prompt too long",
    "prompt: length: 1..",
    "prompt exceeds max length",
    "input is too long",
    "input length and `max_tokens` exceed",
    "input token count",
    "input tokens exceed the configured limit",
    "input text length should not exceed",
    "too many input tokens",
    "too many tokens",
    "exceed model maximum",
    "exceeded model token limit",
    "exceeds the maximum number of tokens allowed",
    "`inputs` tokens + `max_new_tokens` must be",
    "reduce the length of the messages",
    "expected maxlength:",
    "length limit exceeded",
    "range of input length should be",
    // Ollama, whose window the newest messages alone fill.
    "no user query found in messages",
];
/// LiteLLM's words for a text that is too long; the same words refuse other fields, such as `user`.
const LONG_STRING: &str = "string too long. expected a string with maximum length";

/// A conversation that does not fit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overflow {
    /// Tokens of the conversation, if the server said how many.
    pub prompt: Option<u64>,
    /// Tokens of the model's window, if the server said how many.
    pub window: Option<u64>,
    /// The server's words, capped and redacted.
    pub text: String,
}

impl std::fmt::Display for Overflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.prompt, self.window) {
            (Some(prompt), Some(window)) => {
                write!(
                    f,
                    "it has {prompt} tokens, and the model's window has {window}"
                )
            }
            (None, Some(window)) => write!(f, "the model's window has {window} tokens"),
            (Some(prompt), None) => write!(f, "it has {prompt} tokens"),
            (None, None) => f.write_str(&self.text),
        }
    }
}

/// Whether a text says that the conversation does not fit.
pub(super) fn says_so(text: &str) -> bool {
    let text = text.to_lowercase();
    // Another field than a message, also where a proxy omits the code.
    let of_other_field = ["string_above_max_length", "invalid 'tools["];
    if of_other_field.iter().any(|it| text.contains(it)) {
        return false;
    }
    // Limits of a rate are worded alike ("too many tokens, please wait") and pass.
    if ["please wait", "throttl", "per minute", "per day"]
        .iter()
        .any(|sign| text.contains(sign))
    {
        return false;
    }
    let long_string = text.contains(LONG_STRING) && !text.contains("invalid 'user'");
    let cerebras = text.contains("current length is") && text.contains("while limit is");
    long_string || cerebras || WORDINGS.iter().any(|known| text.contains(known))
}

/// What a rate allows in a whole period, and what one request needs.
static RATE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"limit:? ([0-9][0-9,]*)[^.]*?requested:? ([0-9][0-9,]*)").ok());

/// Whether one request needs more tokens than the rate allows in a whole period, so that no wait helps: "Limit 8000,
/// Requested 34031" (OpenAI, Groq), and `tokens_limit_reached` (GitHub Models).
pub(super) fn exceeds_a_rate(text: &str) -> bool {
    let text = text.to_lowercase();
    if text.contains("tokens_limit_reached") {
        return true;
    }
    let Some(found) = RATE
        .as_ref()
        .and_then(|it| it.captures(&text))
        .filter(|_| text.contains("token"))
    else {
        return false;
    };
    let number = |at: usize| found[at].replace(',', "").parse::<u64>().ok();
    let (limit, requested) = (number(1), number(2));
    matches!((limit, requested), (Some(limit), Some(requested)) if requested > limit)
}

/// The sizes in an error, and the words to show. `error` is its object, if it is one.
pub(super) fn read(error: &Value, text: String) -> Overflow {
    let field = |names: [&str; 2]| names.iter().find_map(|name| error[*name].as_u64());
    let (prompt, window) = sizes(&text);
    Overflow {
        prompt: field(["n_prompt_tokens", "prompt_tokens"]).or(prompt),
        window: field(["n_ctx", "context_length"]).or(window),
        text,
    }
}

/// Patterns for a text in lower case and without commas in numbers: `p` is the size of the prompt, `w`
/// that of the window. The first pattern that names each decides.
static SIZES: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let patterns = [
        // Anthropic, Bedrock, Fireworks
        r"prompt is too long: (?P<p>\d+) tokens > (?P<w>\d+)",
        r"prompt is too long: (?P<p>\d+)\D+(?P<w>\d+)",
        r"(?P<p>\d+ \+ \d+) > (?P<w>\d+)",
        r"prompt tokens \((?P<p>\d+)\) exceed model maximum \((?P<w>\d+)\)",
        // TGI, Together
        r"must be <= (?P<w>\d+)\D+(?P<p>\d+) `inputs` tokens",
        // Google, llama.cpp, Copilot
        r"input token count \(?(?P<p>\d+)\)?\D+(?P<w>\d+)",
        r"request \((?P<p>\d+) tokens\) exceeds the available context size \((?P<w>\d+)",
        r"token count of (?P<p>\d+) exceeds the limit of (?P<w>\d+)",
        // Mistral, Moonshot, Cohere, Cerebras
        r"prompt contains (?P<p>\d+) tokens\D+\d+ draft tokens\D+(?P<w>\d+)",
        r"token limit: (?P<w>\d+) \(requested: (?P<p>\d+)\)",
        r"cannot exceed (?P<w>\d+) - received (?P<p>\d+)",
        r"current length is (?P<p>\d+) while limit is (?P<w>\d+)",
        // SiliconFlow
        r"prompt_tokens \((?P<p>\d+)\) must be less than max_seq_len \((?P<w>\d+)",
        // LM Studio
        r"n_keep: (?P<p>\d+) ?>= n_ctx: (?P<w>\d+)",
        // vLLM, SGLang
        r"\(length (?P<p>\d+)\) is longer than the maximum model length of (?P<w>\d+)",
        r"\((?P<p>\d+) tokens\) is longer than the model's context length \((?P<w>\d+)",
        r"request has (?P<p>\d+) input tokens",
        // OpenAI and those who repeat its words
        r"\((?P<p>\d+) in the messages",
        r"\((?P<p>\d+) in your prompt",
        r"messages resulted in (?P<p>\d+)",
        r"requested a total of (?P<p>\d+)",
        r"requested (?:about )?(?P<p>\d+)",
        r"request contains (?P<p>\d+)",
        r"first (?P<p>\d+) tokens",
        r"maximum (?:context|prompt|input|model) (?:length|limit)(?: of| is| is only|:)? (?P<w>\d+)",
        r"context (?:length|size|window)(?: of only| of| is|:)? \(?(?P<w>\d+)",
        r"maximum number of tokens allowed \(?(?P<w>\d+)",
    ];
    // Each is a literal, and a test reads them all.
    patterns
        .iter()
        .filter_map(|it| Regex::new(it).ok())
        .collect()
});

fn sizes(text: &str) -> (Option<u64>, Option<u64>) {
    let text = text.to_lowercase().replace(',', "");
    let (mut prompt, mut window) = (None, None);
    for captures in SIZES.iter().filter_map(|pattern| pattern.captures(&text)) {
        let number = |name| captures.name(name).map(|it| it.as_str());
        prompt = prompt.or_else(|| number("p").and_then(sum));
        window = window.or_else(|| number("w").and_then(sum));
    }
    (prompt, window)
}

/// `190000 + 20000` is what the reply needs too.
fn sum(text: &str) -> Option<u64> {
    text.split('+')
        .map(|part| part.trim().parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known wordings, with prompt and window as a person would read them.
    const KNOWN: [(&str, u64, u64); 33] = [
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9120 tokens. Please reduce the length of the messages.",
            9120,
            8192,
        ),
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4500 in the messages, 500 in the completion). Please reduce the length of the messages or completion.",
            4500,
            4096,
        ),
        (
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 150000 tokens (149000 of text input, 1000 in the output).",
            150_000,
            131_072,
        ),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 500. This model's maximum context length is 4096 tokens and your request has 4000 input tokens (500 > 4096 - 4000).",
            4000,
            4096,
        ),
        (
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller than the number of text tokens.",
            5000,
            4096,
        ),
        (
            "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
            5000,
            4096,
        ),
        (
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 tokens: 4900 tokens from the input messages and 100 tokens for the completion.",
            5000,
            4096,
        ),
        (
            "request (9120 tokens) exceeds the available context size (8192 tokens), try increasing it",
            9120,
            8192,
        ),
        (
            "the request exceeds the available context size. try increasing the context size or enable context shift",
            0,
            0,
        ),
        (
            "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 5000>= n_ctx: 4096). Try to load the model with a larger context length",
            5000,
            4096,
        ),
        (
            "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.",
            5000,
            4096,
        ),
        (
            "prompt is too long: 210000 tokens > 200000 maximum",
            210_000,
            200_000,
        ),
        (
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again",
            210_000,
            200_000,
        ),
        (
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            1_200_000,
            1_048_576,
        ),
        (
            "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
            9000,
            8192,
        ),
        (
            "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
            40_000,
            32_768,
        ),
        (
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20 `max_new_tokens`",
            5000,
            4096,
        ),
        (
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            537_812,
            131_072,
        ),
        (
            "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000.",
            5000,
            4081,
        ),
        (
            "Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)",
            140_000,
            131_072,
        ),
        (
            "prompt token count of 70000 exceeds the limit of 64000, code model_max_prompt_tokens_exceeded",
            70_000,
            64_000,
        ),
        (
            "prompt tokens (210000) exceed model maximum (200000)",
            210_000,
            200_000,
        ),
        (
            "The prompt is too long: 140,000, model maximum context length: 131,071",
            140_000,
            131_071,
        ),
        (
            "litellm.BadRequestError: litellm.ContextWindowExceededError: OpenAIException - too long",
            0,
            0,
        ),
        (
            "BedrockException: Context Window Error - Input is too long for requested model.",
            0,
            0,
        ),
        (
            "Malformed input request: expected maxLength: 51200, actual: 60000",
            0,
            0,
        ),
        ("Range of input length should be [1, 129024]", 0, 0),
        ("Context size has been exceeded.", 0, 0),
        (
            "length of prompt_tokens (68957) must be less than max_seq_len (65536).",
            68_957,
            65_536,
        ),
        ("invalid params, context window exceeds limit (2013)", 0, 0),
        ("the input length exceeds the context length", 0, 0),
        ("Prompt exceeds max length", 0, 0),
        ("no user query found in messages", 0, 0),
    ];

    #[test]
    fn a_rate_limit_on_tokens_is_no_overflow() {
        assert!(!says_so(
            "Too many tokens, please wait before trying again."
        ));
        assert!(!says_so("ThrottlingException: Too many tokens"));
    }

    #[test]
    fn the_known_wordings_are_understood_with_their_sizes() {
        assert_eq!(SIZES.len(), 27, "a pattern cannot be compiled");
        for (text, prompt, window) in KNOWN {
            assert!(says_so(text), "{text}");
            let read = read(&Value::Null, text.to_owned());
            let seen = (read.prompt.unwrap_or(0), read.window.unwrap_or(0));
            assert_eq!(seen, (prompt, window), "{text}");
        }
    }

    #[test]
    fn a_request_that_a_rate_never_allows_is_too_long() {
        for (text, is_too_long) in [
            (
                "Request too large for model `openai/gpt-oss-120b` in organization `org_01` service tier `on_demand` on tokens per minute (TPM): Limit 8000, Requested 34031, please reduce your message size and try again.",
                true,
            ),
            (
                "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30,000, Requested 33,568. The input or output tokens must be reduced in order to run successfully.",
                true,
            ),
            (
                r#"{"error":{"code":"tokens_limit_reached","message":"Request body too large for gpt-4o model. Max size: 8000 tokens."}}"#,
                true,
            ),
            (
                "Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 29500, Requested 2000. Please try again in 3s.",
                false,
            ),
            (
                "Rate limit reached for requests: Limit 3, Used 3, Requested 1.",
                false,
            ),
        ] {
            assert_eq!(exceeds_a_rate(text), is_too_long, "{text}");
        }
        let read = read(&Value::Null, "Limit 8000, Requested 34031".into());
        assert!(read.to_string().contains("34031"), "{read}");
    }

    #[test]
    fn other_refusals_are_no_overflow() {
        for text in [
            "max_tokens is too large: 99999. This model supports at most 4096 completion tokens",
            "Invalid 'user': string too long. Expected a string with maximum length 64",
            "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64, code string_above_max_length",
            "litellm.BadRequestError: AzureException BadRequestError - Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024",
            "Rate limit reached for tokens per minute",
        ] {
            assert!(!says_so(text), "{text}");
        }
    }

    #[test]
    fn fields_of_the_error_come_before_its_words() {
        let error = serde_json::json!({ "n_prompt_tokens": 9120, "n_ctx": 8192 });
        let read = read(
            &error,
            "the request exceeds the available context size".into(),
        );
        assert_eq!(
            read.to_string(),
            "it has 9120 tokens, and the model's window has 8192"
        );
    }
}
