package auth

// StayEncrypted is what the verifier's own client does about redirects.
var StayEncrypted = stayEncrypted
