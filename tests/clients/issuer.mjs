// An OpenID provider by other authors (oidc-provider, certified by the OpenID Foundation) that serves until it is ended.
// In: the URL of a server whose pages people sign in on, if there is one; lines on standard input: "rotate" replaces the
// key that signs. Out: a line with its URL, and one after each change.
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { exportJWK, generateKeyPair } from "jose";
import Provider from "oidc-provider";

const [, , server] = process.argv;
const RESOURCE = "https://api.example.org";

async function newKey(kid, algorithm) {
  const { privateKey } = await generateKeyPair(algorithm, { extractable: true });
  return { ...(await exportJWK(privateKey)), kid, alg: algorithm, use: "sig" };
}

function client(id, algorithm) {
  return {
    client_id: id,
    client_secret: `${id}: a secret with % and +`,
    grant_types: ["client_credentials"],
    redirect_uris: [],
    response_types: [],
    id_token_signed_response_alg: algorithm,
  };
}

function pagesClient(algorithm) {
  return {
    client_id: "pages",
    token_endpoint_auth_method: "none",
    grant_types: ["authorization_code", "refresh_token"],
    redirect_uris: [`${server}/-/pages/callback`],
    post_logout_redirect_uris: [`${server}/`],
    response_types: ["code"],
    id_token_signed_response_alg: algorithm,
  };
}

function provider(url, key) {
  return new Provider(url, {
    clients: [
      ...["shop", "opaque", "waterspout"].map((id) => client(id, key.alg)),
      ...(server ? [pagesClient(key.alg)] : []),
    ],
    jwks: { keys: [key] },
    scopes: ["read", "write", "offline_access"],
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: Boolean(server) },
      revocation: { enabled: true },
      introspection: { enabled: true, allowedPolicy: () => true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => RESOURCE,
        getResourceServerInfo: (_, resource, asking) => ({
          scope: "read write",
          audience: resource,
          // So short that the sessions of a test are renewed.
          ...(asking.clientId === "pages" ? { accessTokenTTL: 4 } : {}),
          accessTokenFormat: asking.clientId === "opaque" ? "opaque" : "jwt",
          jwt: { sign: { alg: key.alg } },
        }),
      },
    },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    rotateRefreshToken: true,
    extraTokenClaims: (_, token) => ({ roles: ["editor"], ...(token.format === "opaque" ? { sub: "opaque" } : {}) }),
  });
}

let answer;
const listener = createServer((request, response) => answer(request, response));
listener.listen(0, "127.0.0.1", async () => {
  const url = `http://127.0.0.1:${listener.address().port}`;
  const algorithms = ["RS256", "ES256", "PS256", "EdDSA"];
  let number = 0;
  const use = async () => {
    const algorithm = algorithms[number % algorithms.length];
    answer = provider(url, await newKey(`key-${number++}`, algorithm)).callback();
    console.log(url, algorithm);
  };
  await use();
  for await (const line of createInterface({ input: process.stdin })) {
    if (line === "rotate") await use();
  }
  process.exit();
});
