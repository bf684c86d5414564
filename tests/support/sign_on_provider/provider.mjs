// A certified provider of OpenID Connect on a loopback port, for walks with Grader.
//   node provider.mjs '{"host": "127.0.0.1", "port": 4000, "client_secret": "…", "grader": "http://127.0.0.3:8080", "name": "university"}'
// It signs in anybody by their name, with no password. POST /rotate makes it sign with a new key.
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';

import Provider from 'oidc-provider';

const told = JSON.parse(process.argv[2]);
const issuer = `http://${told.host}:${told.port}`;
const people = told.people ?? {};

function key() {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { ...privateKey.export({ format: 'jwk' }), use: 'sig', alg: 'RS256', kid: randomUUID() };
}

function provider(keys) {
  const made = new Provider(issuer, {
    clients: [{
      client_id: 'grader',
      client_secret: told.client_secret,
      redirect_uris: [`${told.grader}/sign-on/${told.name}/callback`],
      post_logout_redirect_uris: [`${told.grader}/sign-on/signed-out`],
      backchannel_logout_uri: `${told.grader}/sign-on/${told.name}/logout`,
      backchannel_logout_session_required: true,
    }],
    jwks: { keys },
    claims: {
      openid: ['sub'], profile: ['name', 'preferred_username', 'groups'], email: ['email', 'email_verified'],
    },
    cookies: { keys: [randomUUID()] },
    pkce: { required: () => true },
    // its own way out refuses loopback addresses, where Grader is here, and waits 2.5 s at most
    fetch: (url, { dispatcher, signal, ...options }) => globalThis.fetch(url, options),
    features: {
      backchannelLogout: { enabled: true },
      rpInitiatedLogout: { enabled: true },
      devInteractions: { enabled: true },
    },
    findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id, ...people[id] }) }),
    ttl: { Grant: 3600, Session: 3600, Interaction: 600, AccessToken: 600, IdToken: 600, AuthorizationCode: 60 },
  });
  made.on('server_error', (_ctx, error) => console.error('server_error', error));
  made.on('backchannel.error', (_ctx, error) => console.error('backchannel.error', error.message));
  made.on('backchannel.success', () => console.error('backchannel.success'));
  return made.callback();
}

let keys = [key()];
let answer = provider(keys);
createServer((request, response) => {
  if (request.method === 'POST' && request.url === '/rotate') {
    keys = [key()]; // the old one is withdrawn at once, as after a theft
    answer = provider(keys);
    response.end('rotated');
  } else {
    answer(request, response);
  }
}).listen(told.port, told.host, () => console.log('ready'));
