//! A scripted model server that speaks OpenAI Chat Completions.
