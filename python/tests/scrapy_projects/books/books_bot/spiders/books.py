from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class Books(CrawlSpider):
    name = "books"
    rules = (
        Rule(LinkExtractor(restrict_css="li.next")),
        Rule(LinkExtractor(restrict_css="article.product_pod h3"), callback="parse_book"),
    )

    def __init__(self, site, **kwargs):
        super().__init__(**kwargs)
        self.start_urls = [f"{site}books/"]

    def parse_book(self, response):
        yield {
            "title": response.css("div.product_main > h1::text").get(),
            "category": response.xpath("//ul[@class='breadcrumb']/li[@class='active']/preceding-sibling::li[1]/a/text()").get(),
            "description": response.xpath("//div[@id='product_description']/following-sibling::p/text()").get(),
            "price": response.css("p.price_color::text").re_first(r"[\d.]+"),
        }
