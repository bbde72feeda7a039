# Writes $HOME/.agentmine/tls: the certificate on stdin (session.pem), the same with those of the image
# (bundle.pem), and both for a JVM (java.jks) where there is one. The folder is that of the guest's environment.rs.

folder=$HOME/.agentmine/tls
mkdir -p "$folder" && cat >"$folder/session.pem" || exit 1

roots=/dev/null
for file in "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt \
    /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
    if [ -s "$file" ]; then
        roots=$file
        break
    fi
done
cat "$roots" "$folder/session.pem" >"$folder/new" && mv "$folder/new" "$folder/bundle.pem" || exit 1

keytool=$(command -v keytool) || exit 0
home=$(readlink -f "$keytool")
home=${home%/bin/keytool}
for store in "$home/lib/security/cacerts" "$home/jre/lib/security/cacerts"; do
    [ -s "$store" ] || continue
    cat "$store" >"$folder/new" &&
        keytool -importcert -noprompt -alias agentmine-session -file "$folder/session.pem" \
            -keystore "$folder/new" -storepass changeit >/dev/null 2>&1 &&
        mv "$folder/new" "$folder/java.jks"
    break
done
exit 0
