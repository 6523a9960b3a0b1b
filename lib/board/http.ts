import { ForbiddenException, UnsupportedMediaTypeException } from '@nestjs/common';

export type Headers = Readonly<Record<string, string | string[] | undefined>>;

/** What the requests of Express and Fastify have in common. */
export interface BoardRequest {
  readonly method: string;
  readonly headers: Headers;
  readonly url: string;
  /** Express changes `url` in a mounted application. */
  readonly originalUrl?: string;
  readonly query: Readonly<Record<string, unknown>>;
  readonly body: unknown;
}

/** The response of Node.js. */
export interface RawResponse {
  /** Missing with HTTP/2, which has `stream` instead. */
  readonly destroyed?: boolean;
  readonly stream?: { readonly destroyed: boolean };
  shouldKeepAlive?: boolean;
  setHeader(name: string, value: string): unknown;
  writeHead(status: number): unknown;
  write(text: string): boolean;
  end(): unknown;
  destroy(): unknown;
  on(event: 'close' | 'drain' | 'error', listener: () => void): unknown;
}

/** What the responses of Express and Fastify have in common. That of Express is the response of Node.js, too. */
export interface BoardResponse {
  header(name: string, value: string): unknown;
  status(code: number): unknown;
  send(body: string): unknown;
  /** Fastify: the response of Node.js, and the call that leaves it to the caller. */
  readonly raw?: RawResponse;
  hijack?(): unknown;
}

/** Nothing is loaded from elsewhere, no script or style is in the page itself, and no other site can frame the page. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ');

export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  'content-security-policy': CONTENT_SECURITY_POLICY,
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'cache-control': 'no-store',
};

/** Sends a text directly: what an interceptor of the application does to results must not change the page. */
export function sendText(response: BoardResponse, contentType: string, text: string): void {
  for (const [name, value] of Object.entries(SECURITY_HEADERS)) response.header(name, value);
  response.header('content-type', `${contentType}; charset=utf-8`);
  response.status(200);
  response.send(text);
}

/**
 * Refuses what a page of another site can send with the cookies of this one.
 *
 * @throws ForbiddenException unless the browser says that the request comes from this site
 * @throws UnsupportedMediaTypeException if the body is not JSON, which a form of another site cannot send
 */
export function requireSameOriginJson({ headers }: BoardRequest): void {
  const { host, origin, 'sec-fetch-site': site, 'content-type': contentType } = headers;
  const isSameOrigin = site === undefined ? isHostOf(origin, host) : site === 'same-origin';
  if (!isSameOrigin) throw foreignRequestError();
  if (typeof contentType !== 'string' || !/^application\/json\s*(;|$)/i.test(contentType))
    throw new UnsupportedMediaTypeException('Expected the content type application/json.');
}

/**
 * Refuses a stream that a page of another site opens with the cookies of this one. It could read it if the application allows
 * every origin (CORS), and each open stream costs reads of the store. Over plain HTTP, a browser sends only the origin, and none
 * for a request of the page itself.
 *
 * @throws ForbiddenException if the browser says that the request comes from another site
 */
export function refuseOtherSites({ headers }: BoardRequest): void {
  const { host, origin, 'sec-fetch-site': site } = headers;
  const isOfSite =
    site === undefined
      ? origin === undefined || isHostOf(origin, host)
      : site === 'same-origin' || site === 'none';
  if (!isOfSite) throw foreignRequestError();
}

const foreignRequestError = () => new ForbiddenException('This request must come from the page itself.');

function isHostOf(origin: Headers[string], host: Headers[string]): boolean {
  if (typeof origin !== 'string' || typeof host !== 'string') return false;
  return URL.canParse(origin) && new URL(origin).host === host.toLowerCase();
}
