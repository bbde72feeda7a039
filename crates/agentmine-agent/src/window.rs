//! Notices a server that drops a part of the conversation without an error, as Ollama does beyond its context length:
//! the model then no longer knows its task, and would work without it until the budget ends.
//!
//! The sign is the server's own count of the input: it stops growing while what it is sent grows.

use crate::history::Texts;

/// Growth of what was sent that has to show in the count, in bytes.
const GROWTH: usize = 32 * 1024;
/// Bytes that a token stands for at most, on the average of a growth of that size. Prose and source code have three to five,
/// and long lines of one character 16 at some places.
const BYTES_PER_TOKEN: u64 = 16;
/// Bytes that a token stands for at most in a whole conversation. Where it would be more, the server does not count
/// what it is sent.
const PLAUSIBLE: u64 = 8;
/// Requests in a row that show it.
const TIMES: u32 = 3;

/// What a server counted in the requests of one conversation.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The request with the most tokens, as far as they follow what was sent.
    most: Option<Counted>,
    /// Newest requests in a row whose count does not follow.
    dropped: u32,
    /// The first of them. Where the count follows from there on, another tokenizer counts: a router has changed the model.
    since: Option<Counted>,
    /// Whether a much longer request had much fewer tokens: the server counts only what it had not cached.
    counts_only_new: bool,
}

/// One request.
#[derive(Debug, Clone, Copy)]
struct Counted {
    texts: Texts,
    tokens: u64,
}

impl Counted {
    /// How many bytes more were sent in a later request.
    fn growth(self, later: Self) -> usize {
        later.texts.bytes.saturating_sub(self.texts.bytes)
    }

    /// Whether the count of a later request has grown with what was sent.
    fn is_followed_by(self, later: Self) -> bool {
        later.tokens >= self.tokens + self.growth(later) as u64 / BYTES_PER_TOKEN
    }
}

impl Window {
    /// Adds a request: what was sent, and the server's count of all input. Returns what is wrong once the server drops a
    /// part of what it is sent.
    pub(crate) fn count(&mut self, texts: Texts, tokens: u64) -> Option<String> {
        let newest = Counted { texts, tokens };
        // After a user message there may be fewer: a chat template drops what the model thought before it.
        let is_comparable =
            |most: &Counted| texts.from_users == most.texts.from_users || tokens >= most.tokens;
        let Some(most) = self.most.filter(is_comparable) else {
            let follows = tokens.saturating_mul(PLAUSIBLE) >= texts.bytes as u64;
            self.most = follows.then_some(newest);
            (self.dropped, self.since) = (0, None);
            return None;
        };
        self.counts_only_new |= tokens < most.tokens / 2;
        if most.growth(newest) < GROWTH || most.is_followed_by(newest) {
            (self.dropped, self.since) = (0, None);
            if tokens > most.tokens {
                self.most = Some(newest);
            }
        } else {
            match self.since {
                Some(since) if since.growth(newest) > 0 && since.is_followed_by(newest) => {
                    // A server that drops messages comes back to its limit, and not beyond it.
                    if tokens > most.tokens {
                        (self.most, self.dropped, self.since) = (Some(newest), 0, None);
                    }
                }
                Some(_) => self.dropped += 1,
                None => (self.dropped, self.since) = (1, Some(newest)),
            }
        }
        (self.dropped >= TIMES && !self.counts_only_new).then(|| {
            format!(
                "the model's server does not read the whole conversation: it counted {} input tokens for {} KB of text, and {} \
                 for {} KB. Give it a larger context length (Ollama: OLLAMA_CONTEXT_LENGTH, LM Studio: Context Length)",
                most.tokens,
                most.texts.bytes / 1024,
                tokens,
                texts.bytes / 1024,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request of so many KB.
    fn texts(kb: usize) -> Texts {
        Texts {
            bytes: kb * 1024,
            from_users: 1,
        }
    }

    /// What was found after each request; sizes in KB.
    fn found(requests: &[(usize, u64)]) -> Vec<bool> {
        let mut window = Window::default();
        let count = |(kb, tokens): &(usize, u64)| window.count(texts(*kb), *tokens).is_some();
        requests.iter().map(count).collect()
    }

    #[test]
    fn a_count_that_stays_while_the_conversation_grows_is_found() {
        let cut = [(8, 3000), (12, 3900), (60, 4050), (70, 3700), (80, 4096)];
        assert_eq!(found(&cut), [false, false, false, false, true]);
    }

    #[test]
    fn thoughts_that_are_dropped_after_a_user_message_are_not() {
        let mut window = Window::default();
        assert_eq!(window.count(texts(200), 80_000), None);
        for (kb, tokens) in [(202, 50_000), (240, 59_500), (245, 61_000), (250, 62_500)] {
            let later = Texts {
                from_users: 2,
                ..texts(kb)
            };
            assert_eq!(window.count(later, tokens), None, "{kb}");
        }
    }

    #[test]
    fn the_message_says_what_was_counted_and_what_to_do() {
        let mut window = Window::default();
        window.count(texts(12), 3900);
        let found = (0..3).find_map(|_| window.count(texts(90), 4096)).unwrap();
        assert!(found.contains("3900 input tokens for 12 KB"));
        assert!(found.contains("4096 for 90 KB"));
        assert!(found.contains("OLLAMA_CONTEXT_LENGTH"));
    }

    #[test]
    fn a_count_that_grows_slowly_is_not() {
        // 12 bytes a token: a log with long lines of one character.
        let sparse = [
            (12, 3900),
            (60, 8000),
            (110, 12_300),
            (160, 16_600),
            (210, 20_900),
        ];
        assert!(!found(&sparse).contains(&true));
    }

    #[test]
    fn a_conversation_that_grows_little_is_not() {
        let short = [(12, 3900), (20, 3900), (30, 3900), (40, 3900), (43, 3900)];
        assert!(!found(&short).contains(&true));
    }

    #[test]
    fn one_request_that_is_counted_less_is_not() {
        let once = [
            (12, 3900),
            (60, 3900),
            (62, 16_000),
            (110, 16_000),
            (112, 29_000),
        ];
        assert!(!found(&once).contains(&true));
    }

    #[test]
    fn a_count_that_grows_on_from_a_lower_one_is_not() {
        // A router that has changed the model: the other tokenizer has a fifth fewer for the same text.
        let (mut requests, mut kb) = (vec![(150, 48_000), (200, 64_000)], 240);
        while kb < 400 {
            requests.push((kb, kb as u64 * 256));
            kb += 5;
        }
        assert!(!found(&requests).contains(&true));
        // That server drops what does not fit, too: at once, or by whole messages.
        let most = kb as u64 * 256;
        let mut at_once = requests.clone();
        at_once.extend((1..20).map(|more| (kb + 10 * more, most)));
        assert!(found(&at_once).contains(&true));
        requests.extend((1..60).map(|more| {
            let dropped = u64::try_from(more % 6).unwrap();
            (kb + 10 * more, most - 10_000 + 2_000 * dropped)
        }));
        assert!(found(&requests).contains(&true));
    }

    #[test]
    fn a_server_that_counts_only_what_it_had_not_cached_is_left_alone() {
        let new = [
            (12, 3900),
            (13, 300),
            (60, 3800),
            (100, 3800),
            (140, 3800),
            (180, 3900),
        ];
        assert!(!found(&new).contains(&true));
    }

    #[test]
    fn a_server_that_counts_nothing_is_left_alone() {
        let nothing = [(12, 0), (60, 0), (100, 0), (140, 0), (180, 0)];
        assert!(!found(&nothing).contains(&true));
        let constant = [(12, 10), (60, 10), (100, 10), (140, 10), (180, 10)];
        assert!(!found(&constant).contains(&true));
    }
}
