// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package org.tenurelock.client;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * As much of JSON as the service speaks. An object is a map, an array a list, a whole number that
 * fits a Long, any other number a Double, and null is null.
 */
final class Json {
    private static final int DEEPEST = 64;

    private final String text;
    private int at;

    private Json(final String text) {
        this.text = text;
    }

    /** Reads one value. Throws an IllegalArgumentException if the text is anything else. */
    static Object read(final String text) {
        final Json json = new Json(text);
        final Object value = json.value(0);
        json.space();
        if (json.at != text.length()) {
            throw json.wrong("the end");
        }
        return value;
    }

    /** Writes a map, list, text, truth value, or whole number. */
    static String write(final Object value) {
        final StringBuilder out = new StringBuilder();
        write(value, out);
        return out.toString();
    }

    private static void write(final Object value, final StringBuilder out) {
        if (value instanceof Map<?, ?> map) {
            char before = '{';
            for (final Map.Entry<?, ?> entry : map.entrySet()) {
                out.append(before);
                quote(entry.getKey().toString(), out);
                out.append(':');
                write(entry.getValue(), out);
                before = ',';
            }
            out.append(before == '{' ? "{}" : "}");
        } else if (value instanceof List<?> list) {
            char before = '[';
            for (final Object one : list) {
                out.append(before);
                write(one, out);
                before = ',';
            }
            out.append(before == '[' ? "[]" : "]");
        } else if (value instanceof String string) {
            quote(string, out);
        } else if (value instanceof Long || value instanceof Integer || value instanceof Boolean) {
            out.append(value);
        } else {
            throw new IllegalArgumentException("no JSON for " + value);
        }
    }

    private static void quote(final String string, final StringBuilder out) {
        out.append('"');
        for (int i = 0; i < string.length(); i++) {
            final char c = string.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || c == 0x7f || Character.isSurrogate(c)) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }

    private Object value(final int depth) {
        space();
        if (at == text.length() || depth > DEEPEST) {
            throw wrong("a value");
        }
        switch (text.charAt(at)) {
            case '{':
                return object(depth);
            case '[':
                return array(depth);
            case '"':
                return string();
            case 't':
                return word("true", true);
            case 'f':
                return word("false", false);
            case 'n':
                return word("null", null);
            default:
                return number();
        }
    }

    private Map<String, Object> object(final int depth) {
        final Map<String, Object> map = new LinkedHashMap<>();
        at++;
        space();
        if (next('}')) {
            return map;
        }
        do {
            space();
            final String key = string();
            space();
            want(':');
            map.put(key, value(depth + 1));
            space();
        } while (next(','));
        want('}');
        return map;
    }

    private List<Object> array(final int depth) {
        final List<Object> list = new ArrayList<>();
        at++;
        space();
        if (next(']')) {
            return list;
        }
        do {
            list.add(value(depth + 1));
            space();
        } while (next(','));
        want(']');
        return list;
    }

    private String string() {
        want('"');
        final StringBuilder out = new StringBuilder();
        while (at < text.length()) {
            final char c = text.charAt(at++);
            if (c == '"') {
                return out.toString();
            }
            if (c < ' ') {
                break;
            }
            out.append(c == '\\' ? escaped() : c);
        }
        throw wrong("the end of a string");
    }

    private char escaped() {
        if (at < text.length()) {
            final char c = text.charAt(at++);
            final int i = "\"\\/bfnrt".indexOf(c);
            if (i >= 0) {
                return "\"\\/\b\f\n\r\t".charAt(i);
            }
            if (c == 'u' && at + 4 <= text.length() && text.substring(at, at + 4).matches("[0-9a-fA-F]{4}")) {
                at += 4;
                return (char) Integer.parseInt(text.substring(at - 4, at), 16);
            }
        }
        throw wrong("an escape");
    }

    private Object word(final String word, final Object value) {
        if (!text.startsWith(word, at)) {
            throw wrong(word);
        }
        at += word.length();
        return value;
    }

    private Object number() {
        final int from = at;
        while (at < text.length() && "+-.0123456789eE".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        final String digits = text.substring(from, at);
        if (!digits.matches("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?")) {
            throw wrong("a number");
        }
        if (digits.matches("-?[0-9]{1,18}")) {
            return Long.valueOf(digits);
        }
        return Double.valueOf(digits);
    }

    private void space() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    private boolean next(final char c) {
        if (at < text.length() && text.charAt(at) == c) {
            at++;
            return true;
        }
        return false;
    }

    private void want(final char c) {
        if (!next(c)) {
            throw wrong("'" + c + "'");
        }
    }

    private IllegalArgumentException wrong(final String wanted) {
        return new IllegalArgumentException("not JSON: want " + wanted + " at character " + at);
    }
}
