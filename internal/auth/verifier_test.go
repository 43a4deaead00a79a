package auth_test

import (
	"crypto"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"hubd/internal/auth"
)

// TestClaims: what each claim does to a token that is good otherwise, with a
// leeway of 30 s.
func TestClaims(t *testing.T) {
	v := verifier(t, auth.Config{HMACSecret: []byte(secret), Audience: "hub", Issuer: "idp"})
	at := func(seconds int64) int64 { return now.Unix() + seconds }
	for _, test := range []struct {
		name string
		with claims
		want error
	}{
		{"good", nil, nil},
		{"no exp", claims{"exp": nil}, auth.ExpMissing},
		{"exp 20 s past", claims{"exp": at(-20)}, nil},
		{"exp 29.5 s past", claims{"exp": float64(at(-30)) + 0.5}, nil},
		{"exp 30 s past", claims{"exp": at(-30)}, auth.ExpPast},
		{"exp 40 s past", claims{"exp": at(-40)}, auth.ExpPast},
		{"exp 0", claims{"exp": 0}, auth.ExpPast},
		{"exp null", claims{"exp": json.RawMessage("null")}, auth.DateInvalid},
		{"exp a text", claims{"exp": "4000000000"}, auth.DateInvalid},
		{"exp beyond all time", claims{"exp": 1e300}, auth.DateInvalid},
		{"exp in milliseconds", claims{"exp": at(60) * 1000}, auth.DateInvalid},
		{"exp negative", claims{"exp": -1}, auth.DateInvalid},
		{"exp of another spelling", claims{"exp": nil, "Exp": at(60)}, auth.ExpMissing},
		{"nbf 20 s ahead", claims{"nbf": at(20)}, nil},
		{"nbf 30 s ahead", claims{"nbf": at(30)}, nil},
		{"nbf 40 s ahead", claims{"nbf": at(40)}, auth.NbfFuture},
		{"nbf a text", claims{"nbf": "x"}, auth.DateInvalid},
		{"iat 20 s ahead", claims{"iat": at(20)}, nil},
		{"iat 40 s ahead", claims{"iat": at(40)}, auth.IatFuture},
		{"iat a list", claims{"iat": []int{1}}, auth.DateInvalid},
		{"no aud", claims{"aud": nil}, auth.AudWrong},
		{"aud of others", claims{"aud": []string{"a", "b"}}, auth.AudWrong},
		{"aud among others", claims{"aud": []string{"a", "hub"}}, nil},
		{"aud a number", claims{"aud": 1}, auth.ClaimInvalid},
		{"aud of numbers", claims{"aud": []int{1}}, auth.ClaimInvalid},
		{"no iss", claims{"iss": nil}, auth.IssWrong},
		{"another iss", claims{"iss": "idp2"}, auth.IssWrong},
		{"iss a list", claims{"iss": []string{"idp"}}, auth.ClaimInvalid},
		{"no sub", claims{"sub": nil}, auth.SubInvalid},
		{"sub empty", claims{"sub": ""}, auth.SubInvalid},
		{"sub a number", claims{"sub": 7}, auth.ClaimInvalid},
		{"sub of 256 bytes", claims{"sub": strings.Repeat("s", 256)}, nil},
		{"sub of 257 bytes", claims{"sub": strings.Repeat("s", 257)}, auth.SubInvalid},
		{"no hubd", claims{"hubd": nil}, nil},
		{"hubd null", claims{"hubd": json.RawMessage("null")}, auth.HubdInvalid},
		{"hubd a list", claims{"hubd": []string{"join"}}, auth.HubdInvalid},
		{"join a text", claims{"hubd": claims{"join": "chat.*"}}, auth.HubdInvalid},
		{"join no glob", claims{"hubd": claims{"join": []string{"a", "["}}}, auth.HubdInvalid},
		{"publish no glob", claims{"hubd": claims{"publish": []string{"a-["}}}, auth.HubdInvalid},
		{"admin a text", claims{"hubd": claims{"admin": "true"}}, auth.HubdInvalid},
		{"admin a number", claims{"hubd": claims{"admin": 1}}, auth.HubdInvalid},
		{"unknown in hubd", claims{"hubd": claims{"more": 1}}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := good(claims{"aud": "hub", "iss": "idp"})
			for name, value := range test.with {
				c[name] = value
				if value == nil {
					delete(c, name)
				}
			}
			_, err := v.Verify(sign(jwt.SigningMethodHS256, []byte(secret), c), now)
			if !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
			claim, _, _ := strings.Cut(test.name, " ")
			if err != nil && claim != "exp" && claim != "nbf" && claim != "iat" {
				return
			}
			if err != nil && !strings.Contains(err.Error(), claim) {
				t.Errorf("the refusal %q does not name %s", err, claim)
			}
		})
	}
}

// TestGrant: globs are path.Match's, on whole names, and nothing is granted that
// is not named.
func TestGrant(t *testing.T) {
	v := verifier(t, auth.Config{HMACSecret: []byte(secret)})
	grant := func(hubd claims) auth.Grant {
		t.Helper()
		g, err := v.Verify(sign(jwt.SigningMethodHS256, []byte(secret), good(claims{"hubd": hubd})), now)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	g := grant(claims{"join": []string{"chat.*", "news"}, "publish": []string{"chat.lobby"}})
	if g.Subject != "alice" || !g.Expires.Equal(now.Add(time.Minute)) || g.Admin {
		t.Errorf("%+v", g)
	}
	for room, want := range map[string][2]bool{
		"chat.lobby": {true, true}, "chat.x": {true, false}, "news": {true, false}, "chat.": {true, false},
		"chat": {}, "Chat.x": {}, "xchat.y": {}, "news2": {}, "": {}, "*": {}, "chat.lobby2": {true, false},
	} {
		if got := [2]bool{g.MayJoin(room), g.MayPublish(room)}; got != want {
			t.Errorf("%q: join and publish %v, want %v", room, got, want)
		}
	}
	if g := grant(claims{"admin": true}); !g.Admin || g.MayJoin("a") || g.MayPublish("a") {
		t.Errorf("admin grants rooms: %+v", g)
	}
	if g := grant(claims{"Admin": true, "JOIN": []string{"*"}}); g.Admin || g.MayJoin("a") {
		t.Errorf("names in another spelling grant: %+v", g)
	}
	if g := (auth.Grant{}); g.Admin || g.MayJoin("a") || g.MayPublish("a") {
		t.Error("the zero grant permits something")
	}
}

// TestLeeway: 0 is the default, negative is none.
func TestLeeway(t *testing.T) {
	for leeway, want := range map[time.Duration]time.Duration{0: 30 * time.Second, -1: 0, time.Minute: time.Minute} {
		v := verifier(t, auth.Config{HMACSecret: []byte(secret), Leeway: leeway})
		if v.Leeway() != want {
			t.Errorf("leeway %v is %v, want %v", leeway, v.Leeway(), want)
		}
		exp := now.Add(time.Second)
		token := sign(jwt.SigningMethodHS256, []byte(secret), good(claims{"exp": exp.Unix()}))
		if _, err := v.Verify(token, exp.Add(want-1)); err != nil {
			t.Errorf("leeway %v, just before the end: %v", leeway, err)
		}
		if _, err := v.Verify(token, exp.Add(want)); !errors.Is(err, auth.ExpPast) {
			t.Errorf("leeway %v, at the end: %v", leeway, err)
		}
	}
}

// attack is a token that no verifier may take, or only the one that it is for.
type attack struct {
	name  string
	token string
	by    string // the verifier that takes it, "" for none
}

func attacks(c claims) []attack {
	raw := func(header string, body string) string { return b64([]byte(header)) + "." + b64([]byte(body)) + "." }
	body, _ := json.Marshal(c)
	hs := sign(jwt.SigningMethodHS256, []byte(secret), c)
	none := must(jwt.NewWithClaims(jwt.SigningMethodNone, c).SignedString(jwt.UnsafeAllowNoneSignatureType))
	parts := strings.Split(hs, ".")
	other := strings.Split(sign(jwt.SigningMethodHS256, []byte(secret), good(claims{"sub": "mallory"})), ".")
	as := []attack{
		{"HS256", hs, "hmac"},
		{"RS256", sign(jwt.SigningMethodRS256, keys.rsa, c), "rsa"},
		{"ES256", sign(jwt.SigningMethodES256, keys.ec, c), "ec"},
		{"EdDSA", sign(jwt.SigningMethodEdDSA, keys.ed, c), "ed"},
		{"HS256, a kid that does not matter", sign(jwt.SigningMethodHS256, []byte(secret), c, "kid", "../../dev/null"), "hmac"},
		{"HS384", sign(jwt.SigningMethodHS384, []byte(secret), c), ""},
		{"HS512", sign(jwt.SigningMethodHS512, []byte(secret), c), ""},
		{"RS512", sign(jwt.SigningMethodRS512, keys.rsa, c), ""},
		{"PS256", sign(jwt.SigningMethodPS256, keys.rsa, c), ""},
		{"ES384", sign(jwt.SigningMethodES384, keys.p384, c), ""},
		{"another secret", sign(jwt.SigningMethodHS256, []byte(secret+"x"), c), ""},
		{"empty secret", sign(jwt.SigningMethodHS256, []byte{}, c), ""},
		{"another RSA key", sign(jwt.SigningMethodRS256, keys.otherRSA, c), ""},
		{"another EC key", sign(jwt.SigningMethodES256, keys.otherEC, c), ""},
		{"another Ed key", sign(jwt.SigningMethodEdDSA, keys.otherEd, c), ""},
		{"none", none, ""},
		{"None", raw(`{"alg":"None","typ":"JWT"}`, string(body)), ""},
		{"nOnE with a signature", raw(`{"alg":"nOnE"}`, string(body)) + parts[2], ""},
		{"no alg", raw(`{"typ":"JWT"}`, string(body)) + parts[2], ""},
		{"alg a list", raw(`{"alg":["HS256"]}`, string(body)) + parts[2], ""},
		{"alg twice", raw(`{"alg":"HS256","alg":"none"}`, string(body)), ""},
		{"no signature", parts[0] + "." + parts[1] + ".", ""},
		{"two parts", parts[0] + "." + parts[1], ""},
		{"four parts", hs + ".", ""},
		{"claims of another", parts[0] + "." + other[1] + "." + parts[2], ""},
		{"padding", parts[0] + "." + parts[1] + "." + parts[2] + "=", ""},
		{"a space before", " " + hs, ""},
		{"a line end behind", hs + "\n", ""},
		{"Bearer twice", "Bearer " + hs, ""},
		{"key in the header", sign(jwt.SigningMethodRS256, keys.otherRSA, c, "jwk", string(must(json.Marshal(jwk("", keys.otherRSA, nil))))), ""},
		{"key by URL in the header", sign(jwt.SigningMethodRS256, keys.otherRSA, c, "jku", "http://127.0.0.1:1/", "x5u", "http://127.0.0.1:1/"), ""},
		{"critical extension", sign(jwt.SigningMethodHS256, []byte(secret), c, "crit", "b64"), ""},
		{"empty", "", ""},
		{"dots", "..", ""},
		{"JSON", string(body), ""},
		{"claims null", strings.Split(sign(jwt.SigningMethodHS256, []byte(secret), nil), ".")[0] + "." + b64([]byte("null")) + "." + parts[2], ""},
		{"long", hs + strings.Repeat("A", auth.MaxTokenBytes), ""},
	}
	// A public key is no secret: in every form in which it may lie about.
	for name, k := range map[string]crypto.Signer{"RSA": keys.rsa, "EC": keys.ec, "Ed": keys.ed} {
		der := must(x509.MarshalPKIXPublicKey(k.Public()))
		for form, bytes := range map[string][]byte{
			"PEM": publicPEM(k), "PEM without its last line end": []byte(strings.TrimSpace(string(publicPEM(k)))), "DER": der,
			"JWK": must(json.Marshal(jwk("", k, nil))),
		} {
			as = append(as, attack{"HS256 with the public key " + name + " as " + form, sign(jwt.SigningMethodHS256, bytes, c), ""})
		}
	}
	return as
}

// TestAlgorithms: every token at every verifier.
func TestAlgorithms(t *testing.T) {
	verifiers := map[string]*auth.Verifier{
		"hmac": verifier(t, auth.Config{HMACSecret: []byte(secret)}),
		"rsa":  verifier(t, auth.Config{PublicKey: publicPEM(keys.rsa)}),
		"ec":   verifier(t, auth.Config{PublicKey: publicPEM(keys.ec)}),
		"ed":   verifier(t, auth.Config{PublicKey: publicPEM(keys.ed)}),
	}
	tried, taken := 0, 0
	for _, a := range attacks(good(nil)) {
		for name, v := range verifiers {
			tried++
			_, err := v.Verify(a.token, now)
			if err == nil && a.by != name {
				taken++
				t.Errorf("%s is taken by the verifier %s", a.name, name)
			}
			if a.by == name && err != nil {
				t.Errorf("%s at %s: %v", a.name, name, err)
			}
			checkRefusal(t, a.token, err)
		}
	}
	t.Logf("bypasses %d of %d", taken, tried)
}

// checkRefusal: a refusal is one of the fixed texts, and has nothing of the
// token in it.
func checkRefusal(t testing.TB, token string, err error) {
	t.Helper()
	var r auth.Refusal
	if err != nil && !errors.As(err, &r) && !errors.Is(err, auth.ErrNoKeys) {
		t.Errorf("an error that is no refusal: %v", err)
	}
	const piece = 12
	for i := 0; err != nil && i+piece <= len(token); i++ {
		if strings.Contains(err.Error(), token[i:i+piece]) {
			t.Fatalf("%q has %q of the token", err, token[i:i+piece])
		}
	}
}

func TestPublicKeys(t *testing.T) {
	block := func(typ string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der})
	}
	for _, test := range []struct {
		name string
		file []byte
		want string // in the error, "" for none
	}{
		{"RSA", publicPEM(keys.rsa), ""},
		{"RSA, PKCS 1", block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&keys.rsa.PublicKey)), ""},
		{"with text around it", append([]byte("the key:\n"), append(publicPEM(keys.ec), "\n\n"...)...), ""},
		{"RSA of 1024 bits", publicPEM(keys.weakRSA), "1024 bits is too short"},
		{"P-384", publicPEM(keys.p384), "curve P-256"},
		{"private", privatePEM(keys.rsa), "this is a private key"},
		{"two", append(publicPEM(keys.rsa), publicPEM(keys.ec)...), "more than one PEM block"},
		{"another block", block("CERTIFICATE REQUEST", nil), "no public key"},
		{"broken", block("PUBLIC KEY", []byte{1, 2}), "malformed"},
		{"no PEM", []byte("ssh-ed25519 AAAA"), "this is not PEM"},
	} {
		v, err := auth.New(auth.Config{PublicKey: test.file})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
		if v != nil && !v.Ready() {
			t.Errorf("%s: not ready", test.name)
		}
	}
}

// TestLongToken: one that is too long is not looked at, however well signed.
func TestLongToken(t *testing.T) {
	v := verifier(t, auth.Config{HMACSecret: []byte(secret)})
	for pad, want := range map[int]error{auth.MaxTokenBytes / 2: nil, auth.MaxTokenBytes: auth.Malformed} {
		token := sign(jwt.SigningMethodHS256, []byte(secret), good(claims{"pad": strings.Repeat("x", pad)}))
		if _, err := v.Verify(token, now); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v, want %v", len(token), err, want)
		}
	}
}

// TestOneSource: there is one source of keys, never none.
func TestOneSource(t *testing.T) {
	for _, cfg := range []auth.Config{
		{}, {Audience: "hub"},
		{HMACSecret: []byte(secret), PublicKey: publicPEM(keys.rsa)},
		{HMACSecret: []byte(secret), JWKSURL: "https://issuer.example.com/jwks"},
		{JWKSURL: "issuer.example.com/jwks"}, {JWKSURL: "file:///etc/jwks"}, {JWKSURL: "https://user:word@issuer.example.com/"},
	} {
		if v, err := auth.New(cfg); err == nil {
			v.Close()
			t.Errorf("%+v is taken", cfg)
		}
	}
}

// TestMint: what is minted is good, and grants what was asked for.
func TestMint(t *testing.T) {
	for name, test := range map[string]struct {
		secret, private []byte
		cfg             auth.Config
	}{
		"secret": {[]byte(secret), nil, auth.Config{HMACSecret: []byte(secret)}},
		"RSA":    {nil, privatePEM(keys.rsa), auth.Config{PublicKey: publicPEM(keys.rsa)}},
		"PKCS 1": {nil, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(keys.rsa)}), auth.Config{PublicKey: publicPEM(keys.rsa)}},
		"EC":     {nil, privatePEM(keys.ec), auth.Config{PublicKey: publicPEM(keys.ec)}},
		"SEC 1":  {nil, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: must(x509.MarshalECPrivateKey(keys.ec))}), auth.Config{PublicKey: publicPEM(keys.ec)}},
		"Ed":     {nil, privatePEM(keys.ed), auth.Config{PublicKey: publicPEM(keys.ed)}},
	} {
		m, err := auth.NewMinter(test.secret, test.private)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		token, err := m.Mint(auth.Claims{
			Subject: "bob", Audience: "hub", Issuer: "me", Issued: now, Expires: now.Add(time.Hour),
			Join: []string{"a.*"}, Publish: []string{"b"}, Admin: true,
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		test.cfg.Audience, test.cfg.Issuer = "hub", "me"
		g, err := verifier(t, test.cfg).Verify(token, now)
		if err != nil || g.Subject != "bob" || !g.Expires.Equal(now.Add(time.Hour)) || !g.Admin ||
			!g.MayJoin("a.x") || g.MayJoin("b") || !g.MayPublish("b") || g.MayPublish("a.x") {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
	m, err := auth.NewMinter([]byte(secret), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Mint(auth.Claims{Join: []string{"["}}); err == nil {
		t.Error("a wrong glob is minted")
	}
	for name, test := range map[string][2][]byte{
		"nothing": {}, "both": {[]byte(secret), privatePEM(keys.rsa)}, "public": {nil, publicPEM(keys.rsa)},
		"P-384": {nil, privatePEM(keys.p384)}, "no PEM": {nil, []byte("x")},
		"broken": {nil, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte{1}})},
	} {
		if _, err := auth.NewMinter(test[0], test[1]); err == nil {
			t.Errorf("%s makes a minter", name)
		}
	}
}

// FuzzVerify: nothing is taken that was not signed, nothing is repeated, and
// nothing crashes.
func FuzzVerify(f *testing.F) {
	signed := map[string]bool{}
	for _, a := range attacks(good(nil)) {
		f.Add(a.token)
		signed[a.token] = a.by == "hmac"
	}
	for _, more := range []claims{{"exp": 1e300}, {"exp": -1}, {"hubd": "x"}, {"aud": []any{1, "a"}}, {"sub": nil}} {
		f.Add(sign(jwt.SigningMethodHS256, []byte(secret), good(more)))
	}
	v := verifier(f, auth.Config{HMACSecret: []byte(secret)})
	f.Fuzz(func(t *testing.T, token string) {
		_, err := v.Verify(token, now)
		if err == nil && !signed[token] {
			t.Errorf("taken: %q", token)
		}
		checkRefusal(t, token, err)
	})
}

// FuzzClaims: whatever a token that we signed says, the verdict is a grant or a
// refusal, and a grant has what every grant needs.
func FuzzClaims(f *testing.F) {
	for _, body := range []string{
		`{"sub":"a","exp":1800000060,"hubd":{"join":["*"]}}`, `{"sub":"a","exp":1e9}`, `null`, `[]`, `{"exp":{}}`,
		`{"sub":"a","exp":1800000060,"hubd":{"join":["[a-"],"admin":true}}`, `{"sub":"a","exp":1800000060.5,"nbf":1e-400}`,
		`{"sub":"a","sub":"b","exp":1,"exp":1800000060}`, `{"sub":"\ud800","exp":1800000060,"aud":null}`,
	} {
		f.Add(body)
	}
	v := verifier(f, auth.Config{HMACSecret: []byte(secret)})
	header := b64([]byte(`{"alg":"HS256"}`))
	f.Fuzz(func(t *testing.T, body string) {
		signing := header + "." + b64([]byte(body))
		token := signing + "." + b64(must(jwt.SigningMethodHS256.Sign(signing, []byte(secret))))
		g, err := v.Verify(token, now)
		checkRefusal(t, token, err)
		if err != nil {
			return
		}
		if g.Subject == "" || !now.Before(g.Expires.Add(v.Leeway())) {
			t.Errorf("%q grants %+v", body, g)
		}
		g.MayJoin("chat.lobby")
		g.MayPublish("chat.lobby")
	})
}
