// Results as a WARC 1.1 file (ISO 28500:2017), with the records that `webloom crawl --warc` writes, but neither digests nor compression.

// Headers about the transfer of a body: it is stored as it was after that.
const OF_TRANSFER = new Set(["content-encoding", "transfer-encoding", "content-length"]);

const clean = text => String(text).replaceAll(/[\r\n]/g, " ");
const headers = list => list.map(([name, value]) => `${clean(name)}: ${clean(value)}\r\n`).join("");

// A random UUID; `randomUUID` is missing where the page came by plain HTTP from another machine.
function uuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = bytes[6] & 0x0f | 0x40;
  bytes[8] = bytes[8] & 0x3f | 0x80;
  const digits = [...bytes].map(byte => byte.toString(16).padStart(2, "0")).join("");
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

function record(kind, id, date, more, type, block) {
  const body = new Blob(block);
  const head = `WARC/1.1\r\nWARC-Type: ${kind}\r\nWARC-Record-ID: <urn:uuid:${id}>\r\nWARC-Date: ${date}\r\n${headers(more)}Content-Type: ${type}\r\nContent-Length: ${body.size}\r\n\r\n`;
  return new Blob([head, body, "\r\n\r\n"]);
}

// The first record of a file.
export const warcInfo = () => record("warcinfo", uuid(), new Date().toISOString(), [], "application/warc-fields", ["software: webloom\r\nformat: WARC File Format 1.1\r\n"]);

// The head of a request as HTTP/1.1 has it.
function requestHead({ method, headers: sent }, url, body) {
  const { pathname, search } = new URL(url);
  return `${clean(method)} ${pathname}${search} HTTP/1.1\r\n${headers(sent)}${body === undefined ? "" : `content-length: ${new Blob([body]).size}\r\n`}\r\n`;
}

// The records of a result: what was sent, if the agent reported it, and what came; or why nothing came.
export function warcRecord({ request, targetUrl, status, headers: came, fetchedAt, remoteAddress, protocol, sent, error, tries }, body) {
  const url = targetUrl ?? request.url;
  const date = fetchedAt ?? new Date().toISOString();
  const more = [["WARC-Target-URI", url]];
  if (targetUrl) more.push(["Webloom-Request-URI", request.url]);
  if (!status) return new Blob([record("metadata", uuid(), date, more, "application/warc-fields", [`error: ${clean(error?.message ?? "no answer")}\r\ntries: ${tries}\r\n`])]);
  const [asked, answered] = [uuid(), uuid()];
  if (remoteAddress) more.push(["WARC-IP-Address", remoteAddress]);
  const parts = [];
  if (sent) {
    parts.push(record("request", asked, date, [...more, ["WARC-Concurrent-To", `<urn:uuid:${answered}>`]], "application/http;msgtype=request",
      [requestHead(sent, url, request.body), request.body ?? ""]));
    more.push(["WARC-Concurrent-To", `<urn:uuid:${asked}>`]);
  }
  if (protocol?.startsWith("HTTP/2")) more.push(["WARC-Protocol", protocol === "HTTP/2.0" ? "h2" : protocol]);
  if (error) more.push(["WARC-Truncated", error.kind === "too-large" ? "length" : "unspecified"]);
  const head = `HTTP/1.1 ${status} \r\n${headers(came.filter(([name]) => !OF_TRANSFER.has(name.toLowerCase())))}Content-Length: ${body.length}\r\n\r\n`;
  parts.push(record("response", answered, date, more, "application/http;msgtype=response", [head, body]));
  return new Blob(parts);
}
