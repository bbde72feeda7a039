#!/bin/sh
# Prints a title as a slug for a URL: lower case, words joined with one dash.
printf '%s' "$1" | tr '[:upper:]' '[:lower:]' | tr -c 'a-z0-9' '-'
echo
