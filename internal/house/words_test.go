// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"regexp"
	"strings"
	"testing"
)

// generated are the parts of pages that programs make from measurements.
var generated = regexp.MustCompile(`(?s)<!-- made by.*?<!-- to here`)

// checkWords finds, in pages and help texts, the words that the last table of the glossary
// refuses.
func checkWords(t *tree) (r report) {
	const page = "docs/reference/glossary.md"
	_, table, _ := strings.Cut(t.text[page], "\n## Words that we avoid\n")
	var words []string
	for line := range strings.Lines(table) {
		for _, word := range codePattern.FindAllString(strings.SplitN(line, "|", 3)[min(1, strings.Count(line, "|"))], -1) {
			words = append(words, regexp.QuoteMeta(strings.Trim(word, "`")))
		}
	}
	refused := regexp.MustCompile(`(?i)\b(?:` + strings.Join(words, "|") + `)\b`)
	for _, file := range t.readerFiles() {
		for i, line := range prose(generated.ReplaceAllStringFunc(t.text[file], blank)) {
			if word := refused.FindString(codePattern.ReplaceAllString(line, "CODE")); word != "" && file != page {
				r.add(file, i+1, "%q: the glossary has another word", word)
			}
		}
	}
	return r
}

func TestWords(t *testing.T) {
	hold(t, checkWords)
	find(t, checkWords, map[string]string{
		"docs/reference/glossary.md": "# Words\n\n## Words that we avoid\n\n| `mend`, `one look` | fix, `poll` |\n",
		"README.md":                  "Poll, or `mend` it.\nTake one look.\n",
	}, `README.md:2: "one look"`)
}
