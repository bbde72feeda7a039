//! Faults of git objects that are accepted in a push. The names are the message ids of `git help fsck`.

/// Faults of existing histories. None of them changes which files a checkout writes, or where.
pub(crate) const ACCEPTED: [&str; 19] = [
    "badDate",
    "badDateOverflow",
    "badEmail",
    "badFilemode",
    "badName",
    "badTagName",
    "badTimezone",
    "extraHeaderEntry",
    "gitattributesLarge",
    "gitattributesLineLength",
    "missingEmail",
    "missingNameBeforeEmail",
    "missingSpaceBeforeDate",
    "missingSpaceBeforeEmail",
    "missingTaggerEntry",
    "multipleAuthors",
    "nulInCommit",
    "zeroPaddedDate",
    "zeroPaddedFilemode",
];
